package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Encode encodes a catalog for the store. Raw items lose white space between tokens and nothing else.
func Encode(c *Catalog) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(c); err != nil {
		return nil, fmt.Errorf("encode catalog of backend %q: %w", c.Backend, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Decode decodes what Encode wrote; members that this build does not know are skipped.
func Decode(doc []byte) (*Catalog, error) {
	c := new(Catalog)
	if err := json.Unmarshal(doc, c); err != nil {
		return nil, fmt.Errorf("decode catalog: %w", err)
	}
	return c, nil
}
