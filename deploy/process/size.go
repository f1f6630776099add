package process

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Size is a number of bytes, written in YAML as 4MiB, 512KiB, 1GiB or a plain number. It is never negative.
type Size int64

var units = []struct {
	suffix string
	factor int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}}

// ParseSize reads a size as a config file writes it.
func ParseSize(s string) (Size, error) {
	digits, factor := s, int64(1)
	for _, u := range units {
		if d, ok := strings.CutSuffix(s, u.suffix); ok {
			digits, factor = strings.TrimRight(d, " "), u.factor
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || int64(n) > math.MaxInt64/factor {
		return 0, fmt.Errorf("want a size such as 4MiB, 512KiB or a number of bytes")
	}
	return Size(int64(n) * factor), nil
}

// UnmarshalYAML takes a size with a unit, or a plain number of bytes.
func (s *Size) UnmarshalYAML(node *yaml.Node) error {
	fail := func(err error) error {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %v", node.Line, err)}}
	}
	if node.Kind != yaml.ScalarNode {
		return fail(fmt.Errorf("want a size such as 4MiB, found %s", found(strings.TrimPrefix(node.ShortTag(), "!!"))))
	}
	v, err := ParseSize(node.Value)
	if err != nil {
		return fail(err)
	}
	*s = v
	return nil
}

// String writes s with the largest unit that divides it.
func (s Size) String() string {
	for i := len(units) - 1; i >= 0; i-- {
		if u := units[i]; s != 0 && int64(s)%u.factor == 0 {
			return strconv.FormatInt(int64(s)/u.factor, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// MarshalYAML writes s as String does.
func (s Size) MarshalYAML() (any, error) { return s.String(), nil }
