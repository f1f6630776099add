package routes

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Errors about revocations.
var (
	// ErrTooManyRevocations: the store holds MaxRevocations that have not expired.
	ErrTooManyRevocations = errors.New("too many revocations")
)

const (
	// MaxRevocations is how many a store keeps at once.
	MaxRevocations = 100_000
	// MaxRevocationText is how long issuer, token id and subject may be, in bytes each.
	MaxRevocationText = 1024
)

// Revocation says that an issuer's token, or a subject's tokens of before a moment, are refused until another one. Nothing takes
// it back: it ends at Until. Times are UTC.
type Revocation struct {
	Issuer string `json:"issuer"`
	// TokenID (the jti) or Subject is set, not both. They count within the issuer: another one's token of the same jti is good.
	TokenID string `json:"jti,omitempty"`
	Subject string `json:"subject,omitempty"`
	// IssuedBefore goes with Subject: tokens whose iat is earlier are refused, and those that have none.
	IssuedBefore time.Time `json:"issued_before,omitzero"`
	// Until is when the tokens are accepted again, if they are still good then.
	Until time.Time `json:"until"`
}

// Validate reports every fault but an Until that has passed, joined, each starting with the field's name in JSON.
func (r *Revocation) Validate() error {
	var errs []error
	for _, f := range []struct{ name, text string }{{"issuer", r.Issuer}, {"jti", r.TokenID}, {"subject", r.Subject}} {
		switch {
		case len(f.text) > MaxRevocationText:
			errs = append(errs, fmt.Errorf("%s: has %d bytes; at most %d are possible", f.name, len(f.text), MaxRevocationText))
		case !utf8.ValidString(f.text):
			errs = append(errs, fmt.Errorf("%s: is not UTF-8", f.name))
		}
	}
	if r.Issuer == "" {
		errs = append(errs, errors.New("issuer: is required"))
	}
	switch {
	case r.TokenID == "" && r.Subject == "":
		errs = append(errs, errors.New("jti: this or subject is required"))
	case r.TokenID != "" && r.Subject != "":
		errs = append(errs, errors.New("subject: can't stand beside jti"))
	case r.TokenID != "" && !r.IssuedBefore.IsZero():
		errs = append(errs, errors.New("issued_before: goes with subject only"))
	case r.Subject != "" && r.IssuedBefore.IsZero():
		errs = append(errs, errors.New("issued_before: is required with subject"))
	}
	if r.Until.IsZero() {
		errs = append(errs, errors.New("until: is required"))
	}
	for _, f := range []struct {
		name string
		t    time.Time
	}{{"issued_before", r.IssuedBefore}, {"until", r.Until}} {
		if y := f.t.Year(); !f.t.IsZero() && (y < 1970 || y > 9999) {
			errs = append(errs, fmt.Errorf("%s: is not between the years 1970 and 9999", f.name))
		}
	}
	return errors.Join(errs...)
}

// Key names what is revoked, whatever the Until: of two with one key the later Until counts. It is hexadecimal.
func (r *Revocation) Key() string {
	before := ""
	if !r.IssuedBefore.IsZero() {
		before = r.IssuedBefore.UTC().Format(time.RFC3339Nano)
	}
	h := sha256.New()
	var length [8]byte
	for _, part := range [...]string{r.Issuer, r.TokenID, r.Subject, before} { // each after its length: no two collide by a moved border
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// EncodeRevocation makes the stored form.
func EncodeRevocation(r Revocation) ([]byte, error) {
	r.Until = r.Until.UTC()
	if !r.IssuedBefore.IsZero() {
		r.IssuedBefore = r.IssuedBefore.UTC()
	}
	return json.Marshal(r)
}

// DecodeRevocation is its inverse; what is not valid is an error. Members that it does not know are passed over: a later version
// may have written them.
func DecodeRevocation(doc []byte) (Revocation, error) {
	var r Revocation
	if err := json.Unmarshal(doc, &r); err != nil {
		return Revocation{}, fmt.Errorf("revocation: %w", err)
	}
	if err := r.Validate(); err != nil {
		return Revocation{}, fmt.Errorf("revocation: %w", err)
	}
	return r, nil
}
