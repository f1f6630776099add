package redisstore

import (
	"errors"
	"strings"

	"github.com/weir-mcp/weir/routes"
)

// DefaultPrefix begins every key unless config says otherwise.
const DefaultPrefix = "weir:"

// Hash tags: keys with the same tag share a slot of Redis Cluster.
const (
	tagRoutes = "{routes}:" // all that one change touches
	tagStatus = "{status}:" // what dataplanes say of themselves
)

// Role is who uses a key; ACL files are made from it.
type Role string

// The roles.
const (
	RoleControlPlane Role = "control plane"
	RoleDataplane    Role = "dataplane"
	// RoleAny is a key's writer only: each role writes it.
	RoleAny Role = "both planes"
)

// Key describes one key, or one family of keys, in Redis.
type Key struct {
	// Name follows the prefix; a part in <> stands for an id.
	Name string
	// Type is the type as Redis names it.
	Type string
	// TTL in words; "none" for what must outlive every process.
	TTL string
	// Writer is the only role that writes it, or RoleAny.
	Writer Role
	// Holds says what stands in it.
	Holds string
}

// Keys is every key that this package uses, in the order of docs/redis.md, which a test compares with it.
func Keys() []Key {
	return []Key{
		{tagRoutes + "fence", "hash", "none", RoleControlPlane,
			"incarnation, epoch, sequence, config (the highest config_version that led), complete, released"},
		{tagRoutes + "lease", "hash", "the lease's, 10 s by default", RoleControlPlane,
			"owner, epoch, token of the control plane that leads"},
		{tagRoutes + "index", "hash", "none", RoleControlPlane,
			"host → incarnation, epoch, revision, sequence, removed (0 or 1), digest; a removed host stays as a tombstone"},
		{tagRoutes + "host:<host>", "string", "none", RoleControlPlane,
			"the routing table of a host, JSON"},
		{tagRoutes + "list:<host>", "string", "none", RoleControlPlane,
			"what the host's lists contain, JSON"},
		{tagRoutes + "history:<host>", "list", "none; 20 entries", RoleControlPlane,
			"the latest revisions of a host, newest first: incarnation, epoch, revision, Unix milliseconds, digest, then its compressed table and list"},
		{tagRoutes + "catalogs", "hash", "none", RoleControlPlane,
			"backend → digest of its catalog"},
		{tagRoutes + "catalog:<backend>", "string", "none", RoleControlPlane,
			"the catalog of a backend, JSON"},
		{tagRoutes + "decisions", "hash", "none", RoleControlPlane,
			"subject (pins/<backend>, hold/<host>) → digest of what was decided of it"},
		{tagRoutes + "decision:<subject>", "string", "none", RoleControlPlane,
			"what was decided: approved tool definitions, or the revision that a host is held at, JSON"},
		{tagRoutes + "changes", "stream", "none; about 10,000 entries", RoleControlPlane,
			"one entry a change: kind (host, decision, revocation), incarnation, sequence; then what belongs to the kind"},
		{tagRoutes + "revocations", "hash", "none; each goes some minutes after it ended", RoleControlPlane,
			"digest of what is revoked → when that ends, Unix milliseconds, and the revocation, JSON"},
		{tagStatus + "dataplanes", "zset", "that of its longest member", RoleDataplane,
			"dataplane → when its status expires, Unix milliseconds"},
		{tagStatus + "dataplane:<dataplane>", "string", "the dataplane's choice", RoleDataplane,
			"what a dataplane says of itself, JSON"},
		{"{task:<digest>}", "hash", "that of its longest entry", RoleAny,
			"owner record of a task: host/principal/backend → when the entry expires, its life, when it was made, all in milliseconds, its source (mint, claim, probe), and tool and session, JSON"},
		{"{tasks:<host>/<principal>}", "zset", "that of its longest member", RoleAny,
			"digest of a task that the principal holds in the host → when that expires, Unix milliseconds"},
		{"{taskhost:<host>}", "zset", "that of its longest member", RoleAny,
			"principal with tasks in the host → when the last of them expires, Unix milliseconds"},
	}
}

// keyspace makes keys. Ids come from config and tokens after their grammar was checked, but no id could leave its slot: Redis
// hashes the first {…} of a key, and that is ours.
type keyspace struct{ prefix string }

func (k keyspace) fence() string    { return k.prefix + tagRoutes + "fence" }
func (k keyspace) lease() string    { return k.prefix + tagRoutes + "lease" }
func (k keyspace) index() string    { return k.prefix + tagRoutes + "index" }
func (k keyspace) catalogs() string { return k.prefix + tagRoutes + "catalogs" }
func (k keyspace) changes() string  { return k.prefix + tagRoutes + "changes" }

func (k keyspace) revocations() string { return k.prefix + tagRoutes + "revocations" }

func (k keyspace) host(id routes.HostID) string { return k.prefix + tagRoutes + "host:" + string(id) }
func (k keyspace) list(id routes.HostID) string { return k.prefix + tagRoutes + "list:" + string(id) }
func (k keyspace) catalog(id routes.BackendID) string {
	return k.prefix + tagRoutes + "catalog:" + string(id)
}

func (k keyspace) history(id routes.HostID) string {
	return k.prefix + tagRoutes + "history:" + string(id)
}
func (k keyspace) decisions() string { return k.prefix + tagRoutes + "decisions" }
func (k keyspace) decision(subject string) string {
	return k.prefix + tagRoutes + "decision:" + subject
}

func (k keyspace) statuses() string { return k.prefix + tagStatus + "dataplanes" }
func (k keyspace) status(dataplane string) string {
	return k.prefix + tagStatus + "dataplane:" + dataplane
}

// Owner records have a tag each, so that they spread over a cluster.

func (k keyspace) task(digest string) string { return k.prefix + "{task:" + digest + "}" }
func (k keyspace) tasks(host routes.HostID, principal string) string {
	return k.prefix + "{tasks:" + string(host) + "/" + principal + "}"
}
func (k keyspace) taskHost(host routes.HostID) string {
	return k.prefix + "{taskhost:" + string(host) + "}"
}

// checkPrefix refuses what would move keys to other slots or break an ACL file.
func checkPrefix(prefix string) error {
	switch {
	case len(prefix) > 128:
		return errors.New("over 128 bytes")
	case strings.ContainsAny(prefix, "{}*?[]\\~% \t\r\n\"'"):
		return errors.New(`must not contain spaces, quotes or any of {}*?[]\~%`)
	}
	return nil
}
