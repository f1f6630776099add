package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/weir-mcp/weir/deploy/process"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
)

// words collects the values of a flag that may be given several times.
type words []string

func (w *words) String() string     { return strings.Join(*w, " ") }
func (w *words) Set(v string) error { *w = append(*w, v); return nil }

// longLived is from when on a token's life is remarked on.
const longLived = 30 * 24 * time.Hour

// doubts are what a token is probably not meant to be. A scope that would grant nothing is an error: the token would be good for
// nothing, without a word.
func doubts(o *access.MintOptions) (warnings []string, err error) {
	if _, err := access.ParseScopes(o.Scope, true); err != nil {
		return nil, badUsage("--scope: %w", err)
	}
	for scope := range strings.FieldsSeq(o.Scope) {
		granted, err := access.ParseScopes(scope, true)
		switch ours := strings.HasPrefix(scope, "mcp:"); {
		case err != nil:
			return nil, badUsage("--scope: %w", err)
		case ours && granted.Equal(access.Scopes{}):
			return nil, badUsage("--scope: %q grants nothing; there are mcp:tools, mcp:tools:GLOB, mcp:resources, mcp:prompts and mcp:tasks", scope)
		case !ours:
			warnings = append(warnings, fmt.Sprintf("--scope: Weir takes no notice of %q; its scopes begin with mcp:", scope))
		}
	}
	if o.TTL > longLived {
		warnings = append(warnings, fmt.Sprintf("--ttl: the token is good for %d days, unless it is revoked", int(o.TTL.Hours()/24)))
	}
	if o.TTL < 0 {
		warnings = append(warnings, "--ttl: the token has expired already")
	}
	if _, claimed := o.Extra[cmp.Or(o.HostClaim, access.DefaultVirtualHostClaim)]; len(o.Hosts) == 0 && !claimed {
		warnings = append(warnings, "--virtual-host: without one every request is answered 404")
	}
	return warnings, nil
}

func mintToken(_ context.Context, env Env, c command, args []string) error {
	var o access.MintOptions
	var audiences, hosts, scopes words
	flags := flag.NewFlagSet("token mint", flag.ContinueOnError)
	flags.StringVar(&o.KeyFile, "key-file", "", "private key `FILE`: PEM or JWK; for HS algorithms the secret itself")
	flags.StringVar(&o.Algorithm, "alg", "RS256", "`ALGORITHM`: "+strings.Join(access.Algorithms(), ", "))
	flags.StringVar(&o.KeyID, "kid", "", "key `ID` for the token's header")
	flags.StringVar(&o.Issuer, "issuer", "", "`ISSUER`, the token's iss")
	flags.Var(&audiences, "audience", "`AUDIENCE`, the token's aud; repeatable")
	flags.StringVar(&o.Subject, "subject", "", "`SUBJECT`, the token's sub")
	flags.Var(&hosts, "virtual-host", "virtual `HOST` that the token is for; repeatable")
	flags.StringVar(&o.HostClaim, "host-claim", access.DefaultVirtualHostClaim, "`CLAIM` that names the virtual hosts")
	flags.Var(&scopes, "scope", "`SCOPES`, separated by spaces; repeatable. None: all that the issuer's require_scopes leaves")
	flags.DurationVar(&o.TTL, "ttl", time.Hour, "how long the token lasts; a negative `DURATION` makes an expired one")
	flags.Func("claim", "another claim, `NAME=VALUE`; repeatable", func(v string) error {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return errors.New("want NAME=VALUE")
		}
		if o.Extra == nil {
			o.Extra = map[string]any{}
		}
		o.Extra[name] = value
		return nil
	})
	if err := c.parse(flags, args, env); err != nil {
		return helped(err)
	}
	if err := needed(map[string]bool{
		"key-file": o.KeyFile != "", "issuer": o.Issuer != "", "audience": len(audiences) > 0, "subject": o.Subject != "",
	}, "key-file", "issuer", "audience", "subject"); err != nil {
		return err
	}
	if o.TTL == 0 {
		return badUsage("--ttl: 0 is no duration for a token")
	}
	for _, h := range hosts {
		if !routes.ValidID(h) {
			return badUsage("--virtual-host: %q can't name a virtual host", h)
		}
	}
	o.Audience, o.Hosts, o.Scope = audiences, hosts, scopes.String()
	warnings, err := doubts(&o)
	if err != nil {
		return err
	}
	token, err := access.Mint(o)
	if err != nil {
		return &process.ConfigError{Err: err}
	}
	for _, w := range warnings {
		if _, err := fmt.Fprintln(env.Stderr, "warning: "+w); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(env.Stdout, token)
	return err
}
