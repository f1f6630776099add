// Package access turns a bearer token into an Identity: who calls (a Principal), which virtual hosts the token names, and
// what it may do within them (Scopes).
//
// # How a token is judged
//
// A token is a signed JWT in compact form (RFC 7515, RFC 7519). Its claims are read strictly, before anything is believed: duplicate
// members, padding, line breaks and sizes over MaxToken are refused. The issuer it claims picks exactly one configured issuer; from
// there on only that issuer's algorithms, keys, audiences and hosts count. The header's alg must stand in the issuer's list, and a key
// is tried only if its own type fits that algorithm, so that a public key is never taken for an HMAC secret (RFC 8725 § 3.1). Keys
// that a token brings along (jwk, jku, x5c, x5u) are never looked at, and a token with crit is refused, since Weir understands no
// critical extension.
//
// # What is remembered
//
// Verified tokens are remembered by their SHA-256 for a minute, never past their exp, and no longer than the keys that proved them.
// Refused tokens are not remembered: an attacker would simply send another one each time, so a list of them would save nothing
// against him, and it would keep refusing a good token after its key arrived.
package access
