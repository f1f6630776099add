package wire

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

// tables reads docs/errors.md: the rows of each of its tables, without heads.
func tables(t *testing.T) [][][]string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	var all [][][]string
	in := false
	for line := range strings.Lines(string(doc)) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			in = false
		case strings.HasPrefix(line, "|---"):
			all = append(all, nil)
			in = true
		case in:
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			all[len(all)-1] = append(all[len(all)-1], cells)
		}
	}
	if len(all) != 3 {
		t.Fatalf("%d tables, want 3", len(all))
	}
	return all
}

// sources returns the package's code, without tests.
func sources(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		code, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[f] = string(code)
	}
	return out
}

// Every x.refuse(…) of the code is a row of the first table, and the other way round.
func TestDocumentedRefusals(t *testing.T) {
	want := map[string]bool{}
	for _, row := range tables(t)[0] {
		want[strings.Join(row[:3], " | ")] = true
	}
	statuses := map[string]int{}
	for code := 400; code < 600; code++ {
		name := strings.NewReplacer(" ", "", "-", "").Replace(http.StatusText(code))
		statuses["Status"+name] = code
	}
	call := regexp.MustCompile(`x\.refuse\(http\.(Status\w+), "(\w+)",\s*"([^"]*)"`)
	got, calls := map[string]bool{}, 0
	for _, code := range sources(t) {
		calls += strings.Count(code, "x.refuse(")
		for _, m := range call.FindAllStringSubmatch(code, -1) {
			calls--
			got[fmt.Sprintf("%d | %s | %s", statuses[m[1]], m[2], strings.TrimSpace(m[3]))] = true
		}
	}
	if calls != 0 {
		t.Errorf("%d refusals have no literal status, reason and detail", calls)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("refusals (-documented +code):\n%s", diff)
	}
}

// Every function of errors.go that makes an *Error is a row of the second table, with the right code and statuses.
func TestDocumentedErrors(t *testing.T) {
	made := map[string]*Error{
		"parseError":         parseError(""),
		"invalidRequest":     invalidRequest(""),
		"errTooDeep":         errTooDeep(),
		"InvalidRequest":     InvalidRequest(""),
		"unsupportedVersion": unsupportedVersion(""),
		"UnsupportedVersion": UnsupportedVersion(""),
		"headerMismatch":     headerMismatch(""),
		"missingMeta":        missingMeta(""),
		"invalidMeta":        invalidMeta("", ""),
		"invalidParams":      invalidParams(""),
		"InvalidParams":      InvalidParams(""),
		"UnknownName":        UnknownName(routes.KindTool, Modern, ""),
		"UnknownTask":        UnknownTask(Modern, 0),
		"MethodNotFound":     MethodNotFound(),
		"MissingCapability":  MissingCapability([]byte("{}")),
		"InsufficientScope":  InsufficientScope("mcp:tools"),
		"Denied":             Denied(0, ""),
		"Internal":           Internal(ReasonReset, ""),
		"InternalRetry":      InternalRetry(ReasonReset, "", time.Second),
	}
	type row struct{ Code, Modern, Legacy string }
	got := map[string]row{}
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil || f.Type.Results == nil {
			continue
		}
		if star, ok := f.Type.Results.List[0].Type.(*ast.StarExpr); !ok || fmt.Sprint(star.X) != "Error" {
			continue
		}
		e := made[f.Name.Name]
		if e == nil {
			t.Errorf("%s is not in this test", f.Name.Name)
			continue
		}
		got[f.Name.Name] = row{strconv.Itoa(e.Code), strconv.Itoa(e.HTTPStatus(Modern)), strconv.Itoa(e.HTTPStatus(Legacy))}
	}
	want := map[string]row{}
	for _, cells := range tables(t)[1] {
		want[cells[3]] = row{cells[0], cells[1], cells[2]}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors (-documented +code):\n%s", diff)
	}
}

// Every Reason constant is a row of the third table, with its text.
func TestDocumentedReasons(t *testing.T) {
	got := map[string]string{}
	constant := regexp.MustCompile(`(?m)^\tReason\w+\s+= "(\w+)"`)
	for _, m := range constant.FindAllStringSubmatch(sources(t)["errors.go"], -1) {
		got[m[1]] = ReasonText(m[1])
	}
	want := map[string]string{}
	for _, cells := range tables(t)[2] {
		want[cells[0]] = cells[1]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons (-documented +code):\n%s", diff)
	}
	if got := ReasonText(""); got != "internal error" {
		t.Errorf("without a reason: %q", got)
	}
}

// What the conversations show is documented: an error that no table knows can't be answered.
func TestConversationsShowDocumentedErrorsOnly(t *testing.T) {
	all := tables(t)
	known := map[string]bool{"-32603 429": true, "-32002 200": true} // the fake's own, and the legacy code of UnknownName
	for _, row := range all[0] {
		known[row[1]+" "+row[0]] = true
	}
	for _, row := range all[1] {
		known[row[0]+" "+row[1]], known[row[0]+" "+row[2]] = true, true
	}
	var seen summaries
	files, _ := filepath.Glob("testdata/*.txtar")
	for _, file := range files {
		playFile(t, file, seen.add)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if len(seen.all) < 150 {
		t.Errorf("only %d requests were played", len(seen.all))
	}
	for _, s := range seen.all {
		key := fmt.Sprintf("%d %d", s.Code, s.Status)
		if s.Code == 0 {
			key = fmt.Sprintf("%s %d", s.Reason, s.Status)
		}
		if (s.Code != 0 || s.Status >= 400) && !known[key] {
			t.Errorf("%q is not documented: %+v", key, s)
		}
	}
}

func TestErrorDocuments(t *testing.T) {
	for want, e := range map[string]*Error{
		`{"jsonrpc":"2.0","id":1e3,"error":{"code":-32603,"message":"backend unreachable","data":{"reason":"unreachable"}}}`: Internal(ReasonUnreachable, ""),
		`{"jsonrpc":"2.0","id":1e3,"error":{"code":-32603,"message":"internal error"}}`:                                      Internal("", ""),
		`{"jsonrpc":"2.0","id":1e3,"error":{"code":-32603,"message":"mine","data":{"reason":"x\"y"}}}`:                       Internal(`x"y`, "mine"),
		`{"jsonrpc":"2.0","id":1e3,"error":{"code":-32603,"message":"backend limits the rate of calls","data":{"reason":"rate_limited","retryAfterMs":2}}}`: InternalRetry(
			ReasonRateLimited, "", 1001*time.Microsecond),
		`{"jsonrpc":"2.0","id":1e3,"error":{"code":-32603,"message":"backend limits the rate of calls","data":{"reason":"rate_limited"}}}`: InternalRetry(
			ReasonRateLimited, "", 0),
		`{"jsonrpc":"2.0","id":1e3,"error":{"code":-32002,"message":"resource not found","data":{"uri":"a\u0001"}}}`:                           UnknownName(routes.KindResource, Legacy, "a\x01"),
		`{"jsonrpc":"2.0","id":1e3,"error":{"code":7,"message":"no"}}`:                                                                         Denied(7, "no"),
		`{"jsonrpc":"2.0","id":1e3,"error":{"code":-32021,"message":"missing required client capability","data":{"requiredCapabilities":{}}}}`: MissingCapability([]byte("{}")),
	} {
		if got := string(AppendErrorResponse(nil, []byte("1e3"), e)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if got, want := string(AppendErrorResponse(nil, nil, parseError("x"))), `{"jsonrpc":"2.0","error":{"code":-32700,"message":"parse error: x"}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var err error = MethodNotFound()
	if err.Error() != "method not found" {
		t.Errorf("as an error: %v", err)
	}
}
