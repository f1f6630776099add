package routes

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// SchemaError says that a document is of a major version that this build does not read. Only the host it is about is
// affected: a warm one keeps its last good document.
type SchemaError struct {
	Host   HostID // as the document says; empty when it has none
	Schema int    // the document's version; zero when it has none
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("host %q: document has schema %d, this build reads %d", e.Host, e.Schema, SchemaVersion)
}

// EncodeHost encodes a document as JSON: the same value gives the same bytes, map keys are sorted.
//
// Raw members (Capabilities, ToolSchemas, plugin settings …) keep their member order, the exact text of every number and
// every escape of every string; only white space between tokens is dropped. A raw member that is not JSON, has a duplicate
// key at any depth or is not UTF-8 is an error, as is a name that is not UTF-8. EncodeHost does not validate: see
// [VirtualHost.Validate].
func EncodeHost(vh *VirtualHost) ([]byte, error) {
	doc, err := encode(vh)
	if err != nil {
		return nil, fmt.Errorf("encode host %q: %w", vh.ID, err)
	}
	return doc, nil
}

// DecodeHost decodes what EncodeHost wrote. A document of another major schema, or of none, is a [*SchemaError], whatever
// else it contains. Members that this build does not know are skipped, so that a newer writer of the same schema can add
// some; duplicate keys and text after the document are errors. Raw members come back byte for byte as they stand in doc.
// The result shares no memory with doc.
func DecodeHost(doc []byte) (*VirtualHost, error) {
	vh := new(VirtualHost)
	err := json.Unmarshal(doc, vh, decodeOptions())
	if err == nil && vh.Schema == SchemaVersion {
		return vh, nil
	}
	// Another schema may have other types in any member, so that what failed above is no matter once it is read.
	var head struct {
		Schema int    `json:"schema"`
		ID     HostID `json:"id"`
	}
	if headErr := json.Unmarshal(doc, &head); headErr == nil && head.Schema != SchemaVersion {
		return nil, &SchemaError{Host: head.ID, Schema: head.Schema}
	}
	return nil, fmt.Errorf("decode host: %w", err)
}

// EncodeList encodes a host's lists; what EncodeHost says of bytes holds here too.
func EncodeList(l *HostList) ([]byte, error) {
	doc, err := encode(l)
	if err != nil {
		return nil, fmt.Errorf("encode list: %w", err)
	}
	return doc, nil
}

// DecodeList decodes what EncodeList wrote; members that this build does not know are skipped.
func DecodeList(doc []byte) (*HostList, error) {
	l := new(HostList)
	if err := json.Unmarshal(doc, l, decodeOptions()); err != nil {
		return nil, fmt.Errorf("decode list: %w", err)
	}
	return l, nil
}

// CheckRaw reports why a raw JSON value can't be a member of a document: it is no JSON, has a duplicate key at any depth, is
// not UTF-8, or something follows it.
func CheckRaw(raw []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.ReadValue(); err != nil {
		return err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("text after the value")
	}
	return nil
}

// Digest is a fingerprint of parts: 32 hex digits, the first half of the SHA-256 over every part with its length before it.
func Digest(parts ...[]byte) string {
	h := sha256.New()
	var size [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(size[:], uint64(len(p)))
		h.Write(size[:])
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func encode(v any) ([]byte, error) {
	return json.Marshal(v,
		json.Deterministic(true),
		jsontext.PreserveRawStrings(true),
		jsonv1.OmitEmptyWithLegacySemantics(true), // omitempty drops 0 and false, and keeps a raw {}
		jsonv1.FormatDurationAsNano(true),
	)
}

func decodeOptions() json.Options {
	return jsonv1.FormatDurationAsNano(true)
}

// Version returns the document's place in the order.
func (vh *VirtualHost) Version() Version { return Version{vh.Incarnation, vh.Epoch, vh.Revision} }
