package source

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
)

// MaxEntries bounds what one source may name: a report with more has failed.
const MaxEntries = 10_000

// maxURL bounds a URL, in bytes.
const maxURL = 2 << 10

// Entry is one backend as a source names it, unchecked.
type Entry struct {
	Name     string // the id that it asks for
	URL      string
	Prefix   string // that it suggests for the backend's names; see config.PrefixSuggested
	Timeouts routes.Timeouts
	// Origin says where the source has it from, for people: "Service default/files". May be empty.
	Origin string
	// Fault is why the source itself could make no backend of it; nil: the rest is filled in.
	Fault error
}

// check reports why an entry can't be a backend. Errors never show the URL: it may hold a password.
func (e *Entry) check() error {
	if strings.Contains(e.Name+"\n"+e.URL+"\n"+e.Prefix, "${") {
		return errors.New("holds a secret reference, which no source may give")
	}
	switch {
	case e.Fault != nil:
		return e.Fault
	case !routes.ValidID(e.Name):
		return errors.New("the name can't be a backend's: want 1 to 63 of a-z, 0-9, '.', '_' and '-', a letter or digit first and last")
	case e.URL == "":
		return errors.New("url is missing")
	case len(e.URL) > maxURL:
		return fmt.Errorf("url has %d bytes; at most %d are allowed", len(e.URL), maxURL)
	}
	if _, err := config.ParseURL(e.URL); err != nil {
		return fmt.Errorf("url %w", err)
	}
	if err := config.ValidPrefix(e.Prefix); err != nil {
		return fmt.Errorf("prefix %w", err)
	}
	t := e.Timeouts
	if min(t.Connect, t.Response, t.Idle, t.Total) < 0 {
		return errors.New("a timeout is negative")
	}
	return nil
}

// backend is the entry as the rest of the control plane knows backends.
func (e *Entry) backend(source string) config.Backend {
	return config.Backend{
		ID:    routes.BackendID(e.Name),
		Route: routes.Backend{URL: e.URL, Timeouts: e.Timeouts, Discovered: true, Source: source, SourcePrefix: e.Prefix},
		Pin:   config.PinOff,
	}
}

// label is what a problem calls the entry: of what a source says, only a name of bounded length is shown.
func (e *Entry) label() string {
	label := e.Name
	if e.Origin != "" {
		label = e.Origin
	}
	const most = 128
	return strings.ToValidUTF8(label[:min(len(label), most)], "")
}
