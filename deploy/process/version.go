package process

import (
	"runtime"
	"runtime/debug"
)

// Version is what `make build` has the linker put here, as `git describe` says it. Empty in other builds: ask BuildVersion.
var Version string

// BuildVersion is the version of the binary: Version, else what the Go toolchain recorded (the module's version, or the commit),
// else "devel". It is what --version, the dataplanes' status, and clients and backends are told.
func BuildVersion() string {
	if Version != "" {
		return Version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	return recorded(info)
}

func recorded(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "-dirty"
		}
	}
	if revision == "" {
		return "devel"
	}
	return revision[:min(len(revision), 12)] + modified
}

// VersionLine is what a program's --version prints, without the line's end.
func VersionLine(program string) string {
	return program + " " + BuildVersion() + " " + runtime.Version()
}
