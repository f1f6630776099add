package standalone

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseOptions(t *testing.T) {
	o, err := ParseOptions([]string{
		"--listen", "127.0.0.1:0", "--backend", "a=http://h/mcp?x=y", "--backend", "https://h/mcp?a=b", "--no-auth", "--redis", "redis://r",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &Options{
		Listen: "127.0.0.1:0", Redis: "redis://r", NoAuth: true, LogLevel: "warn",
		Backends: []Backend{{"a", "http://h/mcp?x=y"}, {"", "https://h/mcp?a=b"}},
	}
	if diff := cmp.Diff(want, o); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
}

func TestParseOptionsNamesTheMistake(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"unknown flag":       {[]string{"--what"}, "what"},
		"an argument":        {[]string{"http://h"}, `"http://h"`},
		"no port":            {[]string{"--listen", "localhost"}, "--listen"},
		"stdio":              {[]string{"--backend", "a=stdio:npx x"}, "stdio"},
		"no scheme":          {[]string{"--backend", "a=h:80"}, "NAME=URL"},
		"password in a URL":  {[]string{"--backend", "a=http://u:p@h/"}, "password"},
		"name twice":         {[]string{"--backend", "a=http://h/", "--backend", "a=http://i/"}, `"a"`},
		"no auth, worldwide": {[]string{"--no-auth", "--listen", ":80"}, "loopback"},
	} {
		_, err := ParseOptions(tt.args, nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "u:p@") {
			t.Errorf("%s: the error shows the password: %v", name, err)
		}
	}
}

func TestHelpListsEveryFlag(t *testing.T) {
	var out bytes.Buffer
	if _, err := ParseOptions([]string{"--help"}, &out); !errors.Is(err, errHelp) {
		t.Fatalf("--help: %v", err)
	}
	for _, flag := range []string{"listen", "config", "backend", "redis", "no-auth"} {
		if !strings.Contains(out.String(), "-"+flag) {
			t.Errorf("--help does not name -%s:\n%s", flag, &out)
		}
	}
}
