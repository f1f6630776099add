package secret

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// settle is how old a file must be when it is read for its time stamp to tell a later change: two writes within one tick of
// the file system's clock look the same.
const settle = 2 * time.Second

// fileCache remembers the values of files by what stat says of them.
type fileCache struct {
	mu      *sync.Mutex // guards entries
	entries map[string]cachedFile
}

type cachedFile struct {
	info  fs.FileInfo
	value *string // a pointer, so that printing a Resolver by any verb shows an address
}

func newFileCache() fileCache {
	return fileCache{mu: new(sync.Mutex), entries: map[string]cachedFile{}}
}

// read returns the value of the file at path. An unchanged file costs one stat; the policy, which open checks, is asked
// again whenever path leads to another file.
func (c *fileCache) read(path string, open func(string) (*os.File, error)) (string, error) {
	c.mu.Lock()
	old, ok := c.entries[path]
	c.mu.Unlock()
	if ok {
		if info, err := os.Stat(path); err == nil && unchanged(old.info, info) {
			return *old.value, nil
		}
	}
	f, err := open(path)
	if err != nil {
		return "", withoutPath(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", withoutPath(err)
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("not a regular file")
	}
	value, err := readValue(f)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(info.ModTime()) < settle {
		delete(c.entries, path)
	} else {
		c.entries[path] = cachedFile{info, &value}
	}
	return value, nil
}

func unchanged(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// readValue reads at most MaxValue bytes and a newline, which it cuts.
func readValue(r io.Reader) (string, error) {
	const newline = "\r\n"
	b, err := io.ReadAll(io.LimitReader(r, MaxValue+int64(len(newline))+1))
	if err != nil {
		return "", withoutPath(err)
	}
	v, cut := strings.CutSuffix(string(b), "\n")
	if cut {
		v = strings.TrimSuffix(v, "\r")
	}
	if len(v) > MaxValue {
		return "", errTooLong
	}
	return v, nil
}

// openFile opens a file that the policy allows. Symlinks, of the directory and in the path, are followed, and what they lead
// to must lie in an allowed directory; os.Root holds to that even if somebody swaps a link meanwhile.
func (r *Resolver) openFile(path string) (*os.File, error) {
	const flags = os.O_RDONLY | syscall.O_NONBLOCK // opening a pipe must not wait for a writer
	if r.all {
		return os.OpenFile(path, flags, 0)
	}
	if !r.within(path) {
		return nil, ErrNotAllowed // before anything is looked up, so that the error can't tell which files exist
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	for _, dir := range r.dirs {
		realDir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}
		rel, err := filepath.Rel(realDir, real)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		root, err := os.OpenRoot(realDir)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		return root.OpenFile(rel, flags, 0)
	}
	return nil, ErrNotAllowed
}

// within reports whether path, as written, lies in an allowed directory.
func (r *Resolver) within(path string) bool {
	for _, dir := range r.dirs {
		if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}

// withoutPath drops the path of a file error: the reference names it, and a symlink's target is nobody's business.
func withoutPath(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
