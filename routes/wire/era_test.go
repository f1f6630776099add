package wire

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEraOf(t *testing.T) {
	for version, want := range map[string]Era{
		"2024-11-05": Legacy, "2025-03-26": Legacy, "2025-06-18": Legacy, "2025-11-25": Legacy,
		"2026-07-28": Modern, "2027-01-01": Modern, "": Modern, "1900-01-01": Modern, "banana": Modern, "2025-11-25 ": Modern,
	} {
		if got := EraOf(version); got != want {
			t.Errorf("EraOf(%q) is %v, want %v", version, got, want)
		}
	}
	if !Served(LatestModern) || !Served(LatestLegacy) || !Served(UnstatedVersion) || Versions[0] != LatestModern {
		t.Errorf("the named versions are not among the served ones: %v", Versions)
	}
}

// outcome is what negotiate finds.
type outcome struct {
	Era     Era
	Version string
	Code    int
}

// stated is how a message states its version.
type stated struct {
	header       []string
	meta         string // JSON of the version in _meta, "" for none
	notification bool
	want         outcome
}

func statedVersions() map[string]stated {
	const modern, legacy = "2026-07-28", "2025-11-25"
	return map[string]stated{
		"nothing stated":                                    {nil, "", false, outcome{Legacy, "2025-03-26", 0}},
		"a legacy header":                                   {[]string{legacy}, "", false, outcome{Legacy, legacy, 0}},
		"an older served header":                            {[]string{"2025-06-18"}, "", false, outcome{Legacy, "2025-06-18", 0}},
		"a legacy header that is not served":                {[]string{"2024-11-05"}, "", false, outcome{Legacy, "2024-11-05", CodeUnsupportedVersion}},
		"modern, both equal":                                {[]string{modern}, `"` + modern + `"`, false, outcome{Modern, modern, 0}},
		"modern, surrounding spaces":                        {[]string{" " + modern + "\t"}, `"` + modern + `"`, false, outcome{Modern, modern, 0}},
		"modern, equal repeats":                             {[]string{modern, modern}, `"` + modern + `"`, false, outcome{Modern, modern, 0}},
		"different repeats":                                 {[]string{modern, legacy}, `"` + modern + `"`, false, outcome{Modern, "", CodeHeaderMismatch}},
		"different repeats of legacy versions":              {[]string{legacy, "2025-06-18"}, "", false, outcome{Modern, "", CodeHeaderMismatch}},
		"modern without the header":                         {nil, `"` + modern + `"`, false, outcome{Modern, modern, CodeHeaderMismatch}},
		"modern with an empty header":                       {[]string{""}, `"` + modern + `"`, false, outcome{Modern, modern, CodeHeaderMismatch}},
		"header and _meta differ":                           {[]string{legacy}, `"` + modern + `"`, false, outcome{Modern, modern, CodeHeaderMismatch}},
		"header and _meta differ, the other way":            {[]string{modern}, `"` + legacy + `"`, false, outcome{Modern, legacy, CodeHeaderMismatch}},
		"modern header, no version in _meta":                {[]string{modern}, "", false, outcome{Modern, modern, CodeInvalidParams}},
		"a later header, no version in _meta":               {[]string{"2027-01-01"}, "", false, outcome{Modern, "2027-01-01", CodeInvalidParams}},
		"an unknown header, no version in _meta":            {[]string{"banana"}, "", false, outcome{Modern, "banana", CodeInvalidParams}},
		"both equal and unknown":                            {[]string{"1900-01-01"}, `"1900-01-01"`, false, outcome{Modern, "1900-01-01", CodeUnsupportedVersion}},
		"both equal and not served yet":                     {[]string{"2027-01-01"}, `"2027-01-01"`, false, outcome{Modern, "2027-01-01", CodeUnsupportedVersion}},
		"both equal and legacy":                             {[]string{legacy}, `"` + legacy + `"`, false, outcome{Legacy, legacy, 0}},
		"a version that is no string":                       {[]string{modern}, `20260728`, false, outcome{Modern, modern, CodeInvalidParams}},
		"a version that is null":                            {nil, `null`, false, outcome{Modern, "", CodeInvalidParams}},
		"a notification with a modern header":               {[]string{modern}, "", true, outcome{Modern, modern, 0}},
		"a notification without anything":                   {nil, "", true, outcome{Legacy, "2025-03-26", 0}},
		"a notification with a version in _meta alone":      {nil, `"` + modern + `"`, true, outcome{Modern, modern, 0}},
		"a notification with an unknown header":             {[]string{"banana"}, "", true, outcome{Modern, "banana", CodeUnsupportedVersion}},
		"a notification whose header differs from its meta": {[]string{legacy}, `"` + modern + `"`, true, outcome{Modern, modern, CodeHeaderMismatch}},
	}
}

func TestNegotiate(t *testing.T) {
	for name, tt := range statedVersions() {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			if tt.header != nil {
				h["Mcp-Protocol-Version"] = tt.header
			}
			m := &Message{Method: "m"}
			if !tt.notification {
				m.ID = json.RawMessage("1")
			}
			if tt.meta != "" {
				m.Meta = Object{{MetaProtocolVersion, json.RawMessage(tt.meta)}}
			}
			var got outcome
			var err *Error
			if got.Era, got.Version, err = negotiate(h, m); err != nil {
				got.Code = err.Code
				if status := err.HTTPStatus(got.Era); status != http.StatusBadRequest {
					t.Errorf("status %d, want 400", status)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnsupportedVersionNamesTheServedOnes(t *testing.T) {
	want := `{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"],"requested":"a\"b"}`
	if got := string(UnsupportedVersion(`a"b`).Data); got != want {
		t.Errorf("data is %s, want %s", got, want)
	}
}

func TestCheckMeta(t *testing.T) {
	for doc, code := range map[string]int{
		`{"io.modelcontextprotocol/clientCapabilities":{}}`:                                              0,
		`{"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"a":1}}`: 0,
		`{}`: CodeInvalidParams,
		`{"io.modelcontextprotocol/clientCapabilities":null}`:                                         CodeInvalidParams,
		`{"io.modelcontextprotocol/clientCapabilities":[]}`:                                           CodeInvalidParams,
		`{"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":"me"}`: CodeInvalidParams,
	} {
		meta, err := ParseObject([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		if err := checkMeta(meta); err != nil {
			got = err.Code
		}
		if got != code {
			t.Errorf("%s: code %d, want %d", doc, got, code)
		}
	}
}
