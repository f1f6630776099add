//go:build unix

package secret_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-mcp/weir/routes/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const value = "hunter2-hunter2"

// write makes a file of which the time stamp is old enough for the cache to trust it.
func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	age(t, path, time.Hour)
}

func age(t *testing.T, path string, by time.Duration) {
	t.Helper()
	then := time.Now().Add(-by)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
}

func symlink(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func resolver(t *testing.T, p secret.Policy) *secret.Resolver {
	t.Helper()
	r, err := secret.NewResolver(p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// realTempDir has no symlink in its path.
func realTempDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestExpand(t *testing.T) {
	dir := realTempDir(t)
	outside := realTempDir(t)
	write(t, filepath.Join(outside, "key"), value)
	for name, content := range map[string]string{
		"plain": value, "newline": value + "\n", "crlf": value + "\r\n", "two": value + "\n\n", "empty": "", "nul": value + "\x00",
		"inside": "a\nb", "max": strings.Repeat("x", 8192), "maxline": strings.Repeat("x", 8192) + "\r\n", "over": strings.Repeat("x", 8193),
		"huge": strings.Repeat("x", 1<<20), "nested": "${env:WEIR_TEST_KEY}",
	} {
		write(t, filepath.Join(dir, name), content)
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	symlink(t, filepath.Join(outside, "key"), filepath.Join(dir, "leaves"))
	symlink(t, "plain", filepath.Join(dir, "stays"))
	symlink(t, filepath.Join(dir, "plain"), filepath.Join(dir, "stays-absolute"))
	symlink(t, outside, filepath.Join(dir, "leaves-dir"))
	symlink(t, "gone", filepath.Join(dir, "dangling"))
	symlink(t, "loop", filepath.Join(dir, "loop"))
	t.Setenv("WEIR_TEST_KEY", value)
	t.Setenv("WEIR_TEST_EMPTY", "")
	t.Setenv("WEIR_TEST_LINES", value+"\nX: y")
	t.Setenv("WEIR_TEST_CR", value+"\r")
	t.Setenv("WEIR_TEST_LONG", strings.Repeat("x", 8193))
	t.Setenv("OTHER_KEY", value)

	r := resolver(t, secret.Policy{Env: []string{"WEIR_TEST_*"}, Dirs: []string{dir}})
	all := resolver(t, secret.Policy{All: true})
	none := resolver(t, secret.Policy{})
	file := func(name string) string { return "${file:" + filepath.Join(dir, name) + "}" }
	for name, tt := range map[string]struct {
		r       *secret.Resolver
		in      string
		want    string
		wantErr string // a part of it
		is      error
	}{
		"a text without references":            {r: none, in: "$plain } {$ text\r\n", want: "$plain } {$ text\r\n"},
		"a variable":                           {r: r, in: "${env:WEIR_TEST_KEY}", want: value},
		"text around it":                       {r: r, in: "Bearer ${env:WEIR_TEST_KEY}!", want: "Bearer " + value + "!"},
		"two references":                       {r: r, in: "${env:WEIR_TEST_KEY}:" + file("plain"), want: value + ":" + value},
		"an empty variable is a value":         {r: r, in: "a${env:WEIR_TEST_EMPTY}b", want: "ab"},
		"a variable that is not set":           {r: r, in: "${env:WEIR_TEST_GONE}", wantErr: "${env:WEIR_TEST_GONE}: ", is: secret.ErrUnset},
		"a variable that is not allowed":       {r: r, in: "${env:OTHER_KEY}", wantErr: "${env:OTHER_KEY}: ", is: secret.ErrNotAllowed},
		"a variable, nothing allowed":          {r: none, in: "${env:WEIR_TEST_KEY}", is: secret.ErrNotAllowed},
		"a variable, everything allowed":       {r: all, in: "${env:OTHER_KEY}", want: value},
		"a variable with a line break":         {r: r, in: "${env:WEIR_TEST_LINES}", wantErr: "${env:WEIR_TEST_LINES}: value has a line break or NUL"},
		"a variable with a CR":                 {r: r, in: "${env:WEIR_TEST_CR}", wantErr: "line break"},
		"a variable that is too long":          {r: r, in: "${env:WEIR_TEST_LONG}", wantErr: "${env:WEIR_TEST_LONG}: value is over 8192 bytes"},
		"a file":                               {r: r, in: file("plain"), want: value},
		"a file's last newline is cut":         {r: r, in: file("newline"), want: value},
		"a CRLF is one newline":                {r: r, in: file("crlf"), want: value},
		"only one is cut":                      {r: r, in: file("two"), wantErr: "line break"},
		"an empty file":                        {r: r, in: file("empty"), want: ""},
		"a NUL":                                {r: r, in: file("nul"), wantErr: "NUL"},
		"a file of two lines":                  {r: r, in: file("inside"), wantErr: file("inside") + ": value has a line break"},
		"a file of 8 KiB":                      {r: r, in: file("max"), want: strings.Repeat("x", 8192)},
		"a newline does not count":             {r: r, in: file("maxline"), want: strings.Repeat("x", 8192)},
		"a file of a byte more":                {r: r, in: file("over"), wantErr: "over 8192 bytes"},
		"a file of a megabyte":                 {r: r, in: file("huge"), wantErr: "over 8192 bytes"},
		"the whole text is bounded":            {r: r, in: file("max") + "x", wantErr: "over 8192 bytes"},
		"the whole text of many is bounded":    {r: r, in: file("max") + file("plain"), wantErr: "over 8192 bytes"},
		"a value is not expanded again":        {r: r, in: file("nested"), want: "${env:WEIR_TEST_KEY}"},
		"a file that is not there":             {r: r, in: file("gone"), wantErr: file("gone") + ": ", is: fs.ErrNotExist},
		"a dangling link":                      {r: r, in: file("dangling"), is: fs.ErrNotExist},
		"a loop of links":                      {r: r, in: file("loop"), wantErr: file("loop")},
		"a directory":                          {r: r, in: file("sub"), wantErr: "not a regular file"},
		"the allowed directory itself":         {r: r, in: "${file:" + dir + "}", wantErr: "not a regular file"},
		"a pipe is not waited for":             {r: r, in: file("pipe"), wantErr: "not a regular file"},
		"a pipe, everything allowed":           {r: all, in: file("pipe"), wantErr: "not a regular file"},
		"a link that stays inside":             {r: r, in: file("stays"), want: value},
		"an absolute link that stays inside":   {r: r, in: file("stays-absolute"), want: value},
		"a link that leaves":                   {r: r, in: file("leaves"), is: secret.ErrNotAllowed},
		"a link to a directory outside":        {r: r, in: file("leaves-dir/key"), is: secret.ErrNotAllowed},
		"a file outside":                       {r: r, in: "${file:" + filepath.Join(outside, "key") + "}", is: secret.ErrNotAllowed},
		"a file outside that is not there":     {r: r, in: "${file:" + filepath.Join(outside, "gone") + "}", is: secret.ErrNotAllowed},
		"a neighbour with a longer name":       {r: r, in: "${file:" + dir + "x/key}", is: secret.ErrNotAllowed},
		"a file outside, everything allowed":   {r: all, in: "${file:" + filepath.Join(outside, "key") + "}", want: value},
		"a file, nothing allowed":              {r: none, in: file("plain"), is: secret.ErrNotAllowed},
		"a way out by dots":                    {r: r, in: "${file:" + dir + "/../x}", wantErr: "want an absolute path", is: secret.ErrMalformed},
		"a relative path":                      {r: all, in: "${file:key}", is: secret.ErrMalformed},
		"no path":                              {r: all, in: "${file:}", is: secret.ErrMalformed},
		"a NUL in a path":                      {r: all, in: "${file:/a\x00b}", is: secret.ErrMalformed},
		"no brace":                             {r: all, in: "Bearer ${env:WEIR_TEST_KEY and " + value, wantErr: `a "${" without "}"`, is: secret.ErrMalformed},
		"no scheme":                            {r: all, in: "${WEIR_TEST_KEY}", wantErr: "${WEIR_TEST_KEY}", is: secret.ErrMalformed},
		"a scheme that does not exist":         {r: all, in: "${vault:x}", wantErr: "${vault:x}", is: secret.ErrMalformed},
		"a scheme in capitals":                 {r: all, in: "${ENV:WEIR_TEST_KEY}", is: secret.ErrMalformed},
		"no name":                              {r: all, in: "${env:}", is: secret.ErrMalformed},
		"a space in a name":                    {r: all, in: "${env: WEIR_TEST_KEY}", is: secret.ErrMalformed},
		"a name that begins with a digit":      {r: all, in: "${env:1X}", is: secret.ErrMalformed},
		"a reference in a reference":           {r: all, in: "${env:${env:X}}", is: secret.ErrMalformed},
		"a good one before a malformed one":    {r: r, in: "${env:WEIR_TEST_KEY}${", is: secret.ErrMalformed},
		"a long malformed one is not repeated": {r: all, in: "${" + strings.Repeat("z", 9000) + "}", wantErr: "…", is: secret.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second time, files come from the cache
				got, err := tt.r.Expand(tt.in)
				if fails := tt.wantErr != "" || tt.is != nil; fails != (err != nil) || got != tt.want {
					t.Fatalf("Expand(%.100q) = %.100q, %v; want %.100q, an error: %v", tt.in, got, err, tt.want, fails)
				}
				if err == nil {
					continue
				}
				if !strings.Contains(err.Error(), tt.wantErr) || tt.is != nil && !errors.Is(err, tt.is) {
					t.Errorf("Expand(%.100q): %v; want %q and %v", tt.in, err, tt.wantErr, tt.is)
				}
				if strings.Contains(err.Error(), value) || len(err.Error()) > 500 || strings.Contains(err.Error(), outside) && !strings.Contains(tt.in, outside) {
					t.Errorf("Expand(%.100q) tells too much: %v", tt.in, err)
				}
				if malformed := errors.Is(secret.Check(tt.in), secret.ErrMalformed); malformed != (tt.is == secret.ErrMalformed) {
					t.Errorf("Check(%.100q) says malformed: %v", tt.in, malformed)
				}
			}
		})
	}
}

func TestFilesAreReadAgainWhenTheyChange(t *testing.T) {
	dir := realTempDir(t)
	path := filepath.Join(dir, "key")
	r := resolver(t, secret.Policy{Dirs: []string{dir}})
	expect := func(want string) {
		t.Helper()
		if got, err := r.Expand("${file:" + path + "}"); err != nil || got != want {
			t.Errorf("Expand = %q, %v; want %q", got, err, want)
		}
	}
	write(t, path, "one")
	expect("one")
	expect("one")

	write(t, path, "two") // in place, same size; write sets another time
	expect("two")

	// Two writes within a tick of the clock: the first is read while it is too young to be trusted.
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	expect("abc")
	if err := os.WriteFile(path, []byte("xyz"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	expect("xyz")

	// As editors do: a new file moved over the old one, with its size and its time.
	write(t, path, "old")
	expect("old")
	if info, err = os.Stat(path); err != nil {
		t.Fatal(err)
	}
	write(t, path+".new", "new")
	if err := os.Chtimes(path+".new", info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	expect("new")

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Expand("${file:" + path + "}"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed file: %v", err)
	}
}

// TestMountedSecrets swaps a directory link as Kubernetes does for a mounted Secret.
func TestMountedSecrets(t *testing.T) {
	dir := realTempDir(t)
	for version, content := range map[string]string{"..v1": "first", "..v2": "later"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "key"), content)
	}
	symlink(t, "..v1", filepath.Join(dir, "..data"))
	symlink(t, "..data/key", filepath.Join(dir, "key"))
	mounted := filepath.Join(realTempDir(t), "mounted") // the allowed directory may be a link itself
	symlink(t, dir, mounted)
	r := resolver(t, secret.Policy{Dirs: []string{mounted}})
	ref := "${file:" + mounted + "/key}"
	if got, err := r.Expand(ref); err != nil || got != "first" {
		t.Fatalf("Expand = %q, %v", got, err)
	}
	symlink(t, "..v2", filepath.Join(dir, "..data.new"))
	if err := os.Rename(filepath.Join(dir, "..data.new"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Expand(ref); err != nil || got != "later" {
		t.Errorf("after the swap: %q, %v", got, err)
	}
}

// A cached value must not outlive the permission to read it: the link now leaves the directory.
func TestALinkThatTurnsOutside(t *testing.T) {
	dir, outside := realTempDir(t), realTempDir(t)
	write(t, filepath.Join(dir, "inside"), "inside")
	write(t, filepath.Join(outside, "secret"), value)
	link := filepath.Join(dir, "key")
	symlink(t, "inside", link)
	r := resolver(t, secret.Policy{Dirs: []string{dir}})
	if got, err := r.Expand("${file:" + link + "}"); err != nil || got != "inside" {
		t.Fatalf("Expand = %q, %v", got, err)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	symlink(t, filepath.Join(outside, "secret"), link)
	if got, err := r.Expand("${file:" + link + "}"); !errors.Is(err, secret.ErrNotAllowed) {
		t.Errorf("Expand = %q, %v; want ErrNotAllowed", got, err)
	}
}

func TestResolverShowsNoValue(t *testing.T) {
	dir := realTempDir(t)
	write(t, filepath.Join(dir, "key"), value)
	t.Setenv("WEIR_TEST_KEY", value)
	r := resolver(t, secret.Policy{Env: []string{"WEIR_TEST_*"}, Dirs: []string{dir}})
	if _, err := r.Expand("${env:WEIR_TEST_KEY}${file:" + dir + "/key}"); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		for _, v := range []any{r, *r, struct{ R *secret.Resolver }{r}, struct{ R secret.Resolver }{*r}} {
			out := fmt.Sprintf(format, v)
			if strings.Contains(out, value) || strings.Contains(out, fmt.Sprintf("%x", value)) {
				t.Errorf("%s of a %T shows the value: %s", format, v, out)
			}
		}
	}
	if got, want := r.String(), fmt.Sprintf("secret.Resolver(all false, env [WEIR_TEST_*], dirs [%q])", dir); got != want {
		t.Errorf("String() = %s, want %s", got, want)
	}
}

func TestNewResolverRefuses(t *testing.T) {
	_, err := secret.NewResolver(secret.Policy{Env: []string{"OK", ""}, Dirs: []string{"relative", "/ok"}})
	if want := "env[1]: empty glob\ndirs[0]: \"relative\" is not absolute"; err == nil || err.Error() != want {
		t.Errorf("NewResolver: %v, want %q", err, want)
	}
}

func TestHasReference(t *testing.T) {
	for s, want := range map[string]bool{
		"": false, "$": false, "{}": false, "$x": false, "$ {x}": false, "${env:X}": true, "a${": true, "$${x}": true,
	} {
		if got := secret.HasReference(s); got != want {
			t.Errorf("HasReference(%q) = %v", s, got)
		}
	}
}

func TestResolverIsSafeForConcurrentUse(t *testing.T) {
	dir := realTempDir(t)
	path := filepath.Join(dir, "key")
	write(t, path, "aaaa")
	r := resolver(t, secret.Policy{Dirs: []string{dir}})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if got, err := r.Expand("${file:" + path + "}"); err != nil || got != "aaaa" && got != "bbbb" {
					t.Errorf("Expand = %q, %v", got, err)
				}
			}
		})
	}
	for i := range 20 {
		next := path + ".new"
		write(t, next, strings.Repeat(string("ab"[i%2]), 4))
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}

// FuzzExpand checks the grammar: what Check accepts, and nothing else, is resolved or refused by name; no result has a line
// break that the text had not.
func FuzzExpand(f *testing.F) {
	for _, s := range []string{"${env:WEIR_FUZZ}", "a${file:/nowhere}b", "${env:", "${${env:X}}", "$${env:WEIR_FUZZ}", "${env:A}\r\n${env:B}"} {
		f.Add(s)
	}
	f.Setenv("WEIR_FUZZ", value)
	r, err := secret.NewResolver(secret.Policy{Env: []string{"WEIR_FUZZ"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := r.Expand(s)
		switch {
		case err == nil:
			if want := strings.ReplaceAll(s, "${env:WEIR_FUZZ}", value); got != want {
				t.Errorf("Expand(%q) = %q, want %q", s, got, want)
			}
		case got != "":
			t.Errorf("Expand(%q) = %q and %v", s, got, err)
		case !secret.HasReference(s):
			t.Errorf("Expand(%q): %v, without a reference", s, err)
		case strings.Contains(err.Error(), value) && !strings.Contains(s, value):
			t.Errorf("Expand(%q): %v", s, err)
		}
		if checkErr := secret.Check(s); checkErr != nil && err == nil {
			t.Errorf("Check(%q): %v, yet it expands", s, checkErr)
		}
	})
}

func BenchmarkExpandCachedFile(b *testing.B) {
	dir := b.TempDir()
	path := filepath.Join(dir, "key")
	if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
		b.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		b.Fatal(err)
	}
	r, err := secret.NewResolver(secret.Policy{Dirs: []string{dir}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Expand("Bearer ${file:" + path + "}"); err != nil {
			b.Fatal(err)
		}
	}
}
