package access

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxToken is the longest token that is looked at, in bytes. It leaves room for the group lists of large directories.
const MaxToken = 16 << 10

// token is a JWT taken apart; nothing in it is verified yet.
type token struct {
	signed    string // what the signature is over: header and payload, as they came
	signature []byte
	algorithm string
	kid       string // empty: none
	claims    claims
}

// claims are the members of the payload, by name, as they came.
type claims map[string]jsontext.Value

// parseToken takes a compact JWS apart (RFC 7515 § 3.1) and checks its header. Everything that a lenient reader would let pass is
// refused: what one library reads differently from the next is a way round a check.
func parseToken(s string) (*token, error) {
	header, rest, _ := strings.Cut(s, ".")
	payload, signature, ok := strings.Cut(rest, ".")
	switch {
	case !ok || strings.Contains(signature, "."):
		return nil, errors.New("not three parts")
	case strings.ContainsAny(s, "\r\n"): // the decoder would pass over them
		return nil, errors.New("line break")
	}
	t := &token{signed: s[:len(header)+1+len(payload)]}
	var err error
	if t.signature, err = base64.RawURLEncoding.Strict().DecodeString(signature); err != nil {
		return nil, errors.New("signature: not base64url")
	}
	members, err := decodePart(header)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if err := t.readHeader(members); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if t.claims, err = decodePart(payload); err != nil {
		return nil, fmt.Errorf("claims: %w", err)
	}
	return t, nil
}

// decodePart decodes one JSON object. Duplicate members are refused at any depth, and so is invalid UTF-8.
func decodePart(part string) (claims, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return nil, errors.New("not base64url")
	}
	if jsontext.Value(raw).Kind() != '{' {
		return nil, errors.New("not a JSON object")
	}
	var members claims
	if err := json.Unmarshal(raw, &members); err != nil {
		// The decoder's text may quote what it met, which belongs in no log.
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return nil, errors.New("duplicate member")
		}
		return nil, errors.New("not valid JSON")
	}
	return members, nil
}

func (t *token) readHeader(header claims) error {
	var err error
	if t.algorithm, err = header.text("alg"); err != nil {
		return err
	}
	if t.algorithm == "" {
		return errors.New("no alg")
	}
	if t.kid, err = header.text("kid"); err != nil {
		return err
	}
	// RFC 7515 § 4.1.11: who does not understand a critical extension must refuse, and Weir understands none. b64 (RFC 7797) would
	// change what the signature is over.
	for _, name := range [...]string{"crit", "b64"} {
		if _, ok := header[name]; ok {
			return errors.New(name + " is not supported")
		}
	}
	typ, err := header.text("typ")
	if err != nil {
		return err
	}
	// RFC 8725 § 3.11: a token of another type (a logout token, a DPoP proof) that the same issuer signed is no access token.
	// RFC 9068 § 2.1 names at+jwt.
	switch typ = strings.ToLower(typ); strings.TrimPrefix(typ, "application/") {
	case "", "jwt", "at+jwt":
		return nil
	}
	return errors.New("typ is neither JWT nor at+jwt")
}

// text returns a string member, empty when it is absent.
func (c claims) text(name string) (string, error) {
	v, ok := c[name]
	if !ok {
		return "", nil
	}
	return unquote(name, v)
}

func unquote(name string, v jsontext.Value) (string, error) {
	if v.Kind() != '"' {
		return "", errors.New(name + " is not a string")
	}
	b, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return "", errors.New(name + " is not a valid string")
	}
	return string(b), nil
}

// texts returns a member that is a string or a list of at most limit strings; ok tells whether it is there.
func (c claims) texts(name string, limit int) (list []string, ok bool, err error) {
	v, ok := c[name]
	if !ok {
		return nil, false, nil
	}
	if v.Kind() != '[' {
		s, err := unquote(name, v)
		return []string{s}, true, err
	}
	var items []jsontext.Value
	if err := json.Unmarshal(v, &items); err != nil {
		return nil, true, errors.New(name + " is not a valid list")
	}
	if len(items) > limit {
		return nil, true, fmt.Errorf("%s has more than %d entries", name, limit)
	}
	list = make([]string, len(items))
	for i, item := range items {
		if list[i], err = unquote(name+" entry", item); err != nil {
			return nil, true, err
		}
	}
	return list, true, nil
}

// maxTime is the end of the year 9999, the last second that time.Time can write down in RFC 3339.
const maxTime = 253402300799

// time returns a NumericDate (RFC 7519 § 2): seconds since 1970, maybe with a fraction; ok tells whether it is there.
func (c claims) time(name string) (t time.Time, ok bool, err error) {
	v, ok := c[name]
	if !ok {
		return time.Time{}, false, nil
	}
	if v.Kind() != '0' {
		return time.Time{}, true, errors.New(name + " is not a number")
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || f < 0 || f > maxTime {
		return time.Time{}, true, errors.New(name + " is out of range")
	}
	seconds, fraction := math.Modf(f)
	return time.Unix(int64(seconds), int64(fraction*float64(time.Second))), true, nil
}
