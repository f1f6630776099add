package publish

import (
	"time"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes"
)

// contentDigest is over a host's document and list without their version: what did not change is not written.
func contentDigest(doc *routes.VirtualHost, list *routes.HostList) (string, error) {
	table, err := routes.EncodeHost(doc)
	if err != nil {
		return "", err
	}
	shown, err := routes.EncodeList(list)
	if err != nil {
		return "", err
	}
	return routes.Digest(table, shown), nil
}

// catalogDigest is over a catalog without its times, which every round of discovery changes. A catalog is immutable, so that
// its digest is computed once.
func (c *Controller) catalogDigest(cat *catalog.Catalog) (string, error) {
	if known := c.digests[cat.Backend]; known.of == cat {
		return known.digest, nil
	}
	timeless := *cat
	timeless.Taken = time.Time{}
	for _, list := range []*catalog.List{&timeless.Tools, &timeless.Prompts, &timeless.Resources, &timeless.ResourceTemplates} {
		if !list.Stale { // since when a list is stale matters to who takes it over
			list.Since = time.Time{}
		}
	}
	doc, err := catalog.Encode(&timeless)
	if err != nil {
		return "", err
	}
	digest := routes.Digest(doc)
	c.digests[cat.Backend] = catalogDigest{cat, digest}
	return digest, nil
}

type catalogDigest struct {
	of     *catalog.Catalog
	digest string
}
