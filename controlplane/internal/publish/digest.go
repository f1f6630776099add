package publish

import (
	"bytes"

	"github.com/weir-mcp/weir/controlplane/internal/history"
	"github.com/weir-mcp/weir/routes"
)

// encode encodes what was compiled and takes its digest: over document and list without their version, so that what did not
// change is not written.
func (a *compiled) encode() (err error) {
	if a.table, err = routes.EncodeHost(a.host.Document); err != nil {
		return err
	}
	if a.list, err = routes.EncodeList(a.host.List); err != nil {
		return err
	}
	a.digest = routes.Digest(a.table, a.list)
	return nil
}

// pack makes what the history keeps.
func (a *compiled) pack() (err error) {
	a.kept, err = history.Pack(a.host.Document, a.table, a.list)
	return err
}

// change is what is written of a host at a revision, and its document.
func (a *compiled) change(l routes.Lease, revision uint64) (routes.HostChange, *routes.VirtualHost, error) {
	doc := *a.host.Document
	if a.table == nil { // it was written before, and what stands is not that any more
		if err := a.encode(); err != nil {
			return routes.HostChange{}, nil, err
		}
	}
	if a.kept == nil {
		if err := a.pack(); err != nil {
			return routes.HostChange{}, nil, err
		}
	}
	unversioned := doc
	doc.Incarnation, doc.Epoch, doc.Revision = l.Incarnation, l.Epoch, revision
	table, err := versioned(a.table, &unversioned, &doc)
	if err != nil {
		return routes.HostChange{}, nil, err
	}
	return routes.HostChange{ID: doc.ID, Revision: revision, Digest: a.digest, Document: table, List: a.list, Archive: a.kept}, &doc, nil
}

// versioned is the encoding of doc, which differs from the encoded unversioned in its version only. The version stands in
// front, so that the rest, which is most of the work, is not encoded again.
func versioned(encoded []byte, unversioned, doc *routes.VirtualHost) ([]byte, error) {
	head := func(vh *routes.VirtualHost) ([]byte, error) {
		b, err := routes.EncodeHost(&routes.VirtualHost{
			Schema: vh.Schema, ID: vh.ID, Incarnation: vh.Incarnation, Epoch: vh.Epoch, Revision: vh.Revision,
		})
		return bytes.TrimSuffix(b, []byte("}")), err
	}
	before, err := head(unversioned)
	if err != nil {
		return nil, err
	}
	after, err := head(doc)
	if err != nil {
		return nil, err
	}
	rest, ok := bytes.CutPrefix(encoded, before)
	if !ok {
		return routes.EncodeHost(doc)
	}
	return append(after, rest...), nil
}
