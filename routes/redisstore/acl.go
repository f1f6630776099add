package redisstore

import (
	"slices"
	"strings"
)

// ACLRules returns the rules of a Redis user for a role, as ACL SETUSER and ACL files take them; name, password and "on" go
// before them. A role writes what is its own in Keys and reads the rest.
func ACLRules(role Role, prefix string) string {
	rules := []string{"resetkeys", "resetchannels", "-@all"}
	for _, k := range Keys() {
		name, _, family := strings.Cut(k.Name, "<")
		pattern := prefix + name
		if family {
			pattern += "*"
		}
		if k.Writer == role || k.Writer == RoleAny {
			rules = append(rules, "~"+pattern)
		} else {
			rules = append(rules, "%R~"+pattern)
		}
	}
	for _, c := range commands() {
		if c.role == "" || c.role == role {
			rules = append(rules, "+"+c.name)
		}
	}
	return strings.Join(slices.Compact(rules), " ")
}

// command is one that a role needs; an empty role is every one.
type command struct {
	name string
	role Role
}

// commands are those of the client's connection, of Reader, and of the scripts.
func commands() []command {
	var all []command
	add := func(role Role, names ...string) {
		for _, name := range names {
			all = append(all, command{name, role})
		}
	}
	add("", "auth", "hello", "ping", "select", "command", "cluster|slots", "cluster|shards",
		"readonly", "asking", "multi", "exec", "evalsha", "eval", "time")
	add("", "get", "mget", "hget", "hmget", "hgetall", "hexists", "hlen", "hscan", "exists", "xread", "xrevrange", "zrange", "lrange")
	add("", "hset", "hdel", "zadd", "zrem", "zremrangebyscore", "zscore", "zcard", "zcount", "zrevrangebyscore", "pexpireat")
	add(RoleControlPlane, "set", "del", "hincrby", "pexpire", "xadd", "lpush", "ltrim", "info")
	add(RoleDataplane, "set")
	return all
}
