package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-mcp/weir/deploy/process"
)

func TestConfigCheck(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	base := "redis: redis://127.0.0.1:1\nauth: {issuers: [{issuer: i, audiences: [a], algorithms: [HS256], hmac_secret: " + token + "}]}\n"
	for name, tt := range map[string]struct {
		file string
		args []string // beside the file
		out  []string // what is printed tells
		bad  bool
	}{
		"complete":           {base + "control_plane: {admin_url: \"http://127.0.0.1:1\", token: " + token + "}\n", nil, []string{": ok, warnings: 0\n"}, false},
		"nobody to ask":      {base, nil, []string{": warning: control_plane.admin_url is not set", ": ok, warnings: 1\n"}, false},
		"no token to ask by": {base + "control_plane: {admin_url: \"http://127.0.0.1:1\"}\n", nil, []string{": warning: control_plane.token is not set"}, false},
		"a fault":            {base + "lisen: x\n", nil, nil, true},
		"an argument":        {base, []string{"more"}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "dataplane.yaml")
			if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			err := run(t.Context(), append([]string{"config", "check", "--config", path}, tt.args...), &out)
			if _, bad := errors.AsType[*process.ConfigError](err); bad != tt.bad || err != nil && !bad {
				t.Errorf("error %v", err)
			}
			for _, want := range tt.out {
				if !strings.Contains(out.String(), want) {
					t.Errorf("printed %q, want %q in it", out.String(), want)
				}
			}
		})
	}
	if err := run(t.Context(), []string{"config", "check"}, io.Discard); err == nil {
		t.Error("no error without a file")
	}
}
