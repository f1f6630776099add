package process

import (
	"runtime/debug"
	"testing"
)

func TestRecordedVersion(t *testing.T) {
	for name, tt := range map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"a released module": {debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "v1.2.3"},
		"nothing":           {debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "devel"},
		"a commit": {debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "false"}}}, "0123456789ab"},
		"a commit and edits": {debug.BuildInfo{Settings: []debug.BuildSetting{
			{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: "0123456789abcdef"}}}, "0123456789ab-dirty"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := recorded(&tt.info); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
