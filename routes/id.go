package routes

// maxID is the longest id; it keeps ids usable as DNS labels, file names and metric labels.
const maxID = 63

// ValidID reports whether s may name a host or a backend: 1 to 63 characters of a-z, 0-9, '.', '_' and '-', the first and
// the last of them a letter or digit. An id is checked wherever it enters (config, token, raw path), before any look-up.
func ValidID(s string) bool {
	if len(s) == 0 || len(s) > maxID || !alphanumeric(s[0]) || !alphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
