package httpdoc

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/weir-mcp/weir/controlplane/internal/source"
	"github.com/weir-mcp/weir/routes"
)

// document is what a source serves: docs/sources.md.
type document []entry

type entry struct {
	Name     string   `json:"name"`
	URL      string   `json:"url"`
	Prefix   string   `json:"prefix"`
	Timeouts timeouts `json:"timeouts"`
}

type timeouts struct {
	Connect  duration `json:"connect"`
	Response duration `json:"response"`
	Idle     duration `json:"idle"`
	Total    duration `json:"total"`
}

// duration is written as in the config file: "30s".
type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 30s", text)
	}
	*d = duration(v)
	return nil
}

// Decode reads a document, all of it or nothing: an unknown or repeated member, a wrong type, anything before or after the list
// and text that is not UTF-8 are errors, which say where. A list that is empty is no error: there are no backends then. Whether
// an entry can be a backend is checked later, one by one.
func Decode(doc []byte) ([]source.Entry, error) {
	var d document
	if err := json.Unmarshal(doc, &d, json.RejectUnknownMembers(true)); err != nil {
		return nil, described(err)
	}
	if d == nil {
		return nil, errors.New("the document is null; want a list of backends")
	}
	if len(d) > source.MaxEntries {
		return nil, fmt.Errorf("the document lists %d backends; at most %d are allowed", len(d), source.MaxEntries)
	}
	out := make([]source.Entry, len(d))
	for i, e := range d {
		out[i] = source.Entry{Name: e.Name, URL: e.URL, Prefix: e.Prefix, Timeouts: routes.Timeouts{
			Connect: time.Duration(e.Timeouts.Connect), Response: time.Duration(e.Timeouts.Response),
			Idle: time.Duration(e.Timeouts.Idle), Total: time.Duration(e.Timeouts.Total),
		}}
		if e.Name == "" {
			out[i].Origin = fmt.Sprintf("entry %d", i)
		}
	}
	return out, nil
}

// described says where a document is wrong and shows nothing of its values: a URL may hold a password.
func described(err error) error {
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		if errors.Is(err, json.ErrUnknownName) {
			return fmt.Errorf("the document has an unknown member at %s", e.JSONPointer)
		}
		if e.Err != nil {
			return fmt.Errorf("the document is wrong at %s: %w", e.JSONPointer, e.Err)
		}
		return fmt.Errorf("the document has a %s at %q, which is not what belongs there", e.JSONKind, e.JSONPointer)
	}
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return fmt.Errorf("the document is not JSON at byte %d, %q: %w", e.ByteOffset, e.JSONPointer, e.Err)
	}
	return fmt.Errorf("the document is not JSON: %w", err)
}
