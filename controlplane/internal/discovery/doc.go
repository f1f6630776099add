// Package discovery keeps one catalog per backend fresh: it finds a backend's era, walks every page of its lists, and keeps
// the raw items.
//
// A backend has a goroutine of its own, which rests for the interval (with jitter) between two rounds, and less while the
// backend fails. Rounds take a slot, so that only so many run at once; backends that failed the last time share a few slots
// of their own, so that however many of them hang, the others are looked at in time. A list that failed is not an empty list:
// package catalog merges what a round found with what was known.
//
// Beside the timer, a backend that declares it is listened to (subscriptions/listen, or the standalone stream of a session of a
// legacy one): what it announces makes a round due, as an operator's request does.
package discovery
