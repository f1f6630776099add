package routes

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// How a dataplane asks the control plane for the backend of a task id whose record does not let the caller through:
// POST /internal/v1/tasks/locate on admin_listen, with the bearer token of internal.token. Source: DESIGN § 8.

const (
	// MaxLocateBody bounds the request's and the answer's body, in bytes.
	MaxLocateBody = 64 << 10
	// MaxLocateID is how long, in bytes, a task id may be that is looked for at backends. A longer one is a miss unless it is recorded.
	MaxLocateID = 4096

	maxLocateText = 4096 // of each of the other members but the token
	maxLocateJWT  = 16 << 10
)

// LocateRequest asks for a task on behalf of a caller.
type LocateRequest struct {
	// Token is the caller's own JWT, which the control plane verifies itself: who asks is taken from it alone. Empty where there is no
	// auth.
	Token string `json:"token,omitempty"`
	// Resource is the URI of the endpoint that the caller used, for audiences that are "resource".
	Resource string `json:"resource,omitempty"`
	Host     HostID `json:"host"`
	TaskID   string `json:"taskId"`
	Era      string `json:"era"` // the caller's: LocateModern or LocateLegacy
	// Method and RequestID (the caller's X-Request-Id, if any) are for the audit line.
	Method    string `json:"method,omitempty"`
	RequestID string `json:"requestId,omitempty"`
}

// The values of LocateRequest.Era.
const (
	LocateModern = "modern"
	LocateLegacy = "legacy"
)

// LocateOutcome says what became of a look for a task.
type LocateOutcome string

// The outcomes.
const (
	LocateOwner       LocateOutcome = "owner"       // LocateAnswer.Owner holds it, and the caller may follow it
	LocateMiss        LocateOutcome = "miss"        // as far as the caller may know there is no such task
	LocateAmbiguous   LocateOutcome = "ambiguous"   // several backends know it: ErrAmbiguousTask
	LocateUnavailable LocateOutcome = "unavailable" // it can't be said now; asking again may help
)

// LocateAnswer is the answer to a LocateRequest.
type LocateAnswer struct {
	Outcome LocateOutcome `json:"outcome"`
	Owner   *LocatedOwner `json:"owner,omitempty"` // of LocateOwner
	// Cause is why it is none of LocateOwner, for logs and never for the caller: it tells a denial from a miss.
	Cause string `json:"cause,omitempty"`
}

// The values of LocateAnswer.Cause, and of the member cause of audit lines.
const (
	CauseUnknown   = "unknown"          // no backend knows it
	CauseForeign   = "foreign"          // it is another principal's
	CauseScope     = "scope"            // the token does not cover tasks of unknown tools
	CauseNegative  = "negative"         // nobody knew it a moment ago
	CauseBudget    = "over_budget"      // the principal asks for too many unknown ids
	CauseDenied    = "denied_by_policy" // the host has tasks.unrecorded: deny
	CauseTooLong   = "too_long"         // over MaxLocateID
	CauseStore     = "store"            // Redis is away
	CauseRecovery  = "recovering"       // Redis was away a moment ago: records may still be on their way
	CauseBackend   = "backend"          // a backend could not be asked
	CauseAmbiguous = "ambiguous"        // several backends know it
	CauseRemoved   = "backend_removed"  // it is the principal's own, and its backend is no longer in the host
	CauseTooMany   = "too_many_tasks"   // the principal holds MaxTasks
	CauseCanceled  = "canceled"         // whoever asked has left
)

// LocatedOwner is a TaskOwner as it travels; the principal is the caller's, unless the source says that it is everybody's.
type LocatedOwner struct {
	Backend BackendID  `json:"backend"`
	Source  TaskSource `json:"source"`
	Tool    string     `json:"tool,omitempty"`
	Session string     `json:"session,omitempty"`
	LifeMs  int64      `json:"lifeMs"`
}

// OwnerOf is a TaskOwner ready to travel.
func OwnerOf(o *TaskOwner) *LocatedOwner {
	return &LocatedOwner{Backend: o.Backend, Source: o.Source, Tool: o.Tool, Session: o.Session, LifeMs: o.Life.Milliseconds()}
}

// For is the entry as it belongs to a principal.
func (l *LocatedOwner) For(principal string) *TaskOwner {
	if l.Source == TaskShared {
		principal = AnyPrincipal
	}
	return &TaskOwner{Principal: principal, Backend: l.Backend, Source: l.Source, Tool: l.Tool, Session: l.Session,
		Life: time.Duration(l.LifeMs) * time.Millisecond}
}

// ErrLocate is in every error of this file's codec. The errors name members and never quote what they hold.
var ErrLocate = errors.New("no message of task location")

// EncodeLocateRequest encodes a request, or says what the other side would refuse.
func EncodeLocateRequest(r *LocateRequest) ([]byte, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	return encodeLocate(r)
}

// DecodeLocateRequest decodes strictly: unknown members, duplicates, text behind it and what is out of bounds are errors.
func DecodeLocateRequest(doc []byte) (*LocateRequest, error) {
	r := new(LocateRequest)
	if err := decodeLocate(doc, r); err != nil {
		return nil, err
	}
	return r, r.validate()
}

// EncodeLocateAnswer encodes an answer, or says what the other side would refuse.
func EncodeLocateAnswer(a *LocateAnswer) ([]byte, error) {
	if err := a.validate(); err != nil {
		return nil, err
	}
	return encodeLocate(a)
}

// DecodeLocateAnswer decodes strictly, like DecodeLocateRequest.
func DecodeLocateAnswer(doc []byte) (*LocateAnswer, error) {
	a := new(LocateAnswer)
	if err := decodeLocate(doc, a); err != nil {
		return nil, err
	}
	return a, a.validate()
}

func encodeLocate(v any) ([]byte, error) {
	doc, err := json.Marshal(v)
	switch {
	case err != nil:
		return nil, locateError("a text is not UTF-8")
	case len(doc) > MaxLocateBody:
		return nil, locateError("over %d bytes", MaxLocateBody)
	}
	return doc, nil
}

func decodeLocate(doc []byte, v any) error {
	if len(doc) > MaxLocateBody {
		return locateError("over %d bytes", MaxLocateBody)
	}
	err := json.Unmarshal(doc, v, json.RejectUnknownMembers(true))
	switch wrong, ok := errors.AsType[*json.SemanticError](err); {
	case err == nil:
		return nil
	case errors.Is(err, json.ErrUnknownName):
		return locateError("a member that is not known")
	case ok && wrong.JSONPointer != "":
		return locateError("%s has the wrong type", known(string(wrong.JSONPointer)))
	case errors.Is(err, jsontext.ErrDuplicateName):
		return locateError("a member stands twice")
	}
	return locateError("not a JSON object")
}

// known cuts a pointer down to what its sender can't choose.
func known(pointer string) string {
	switch name := strings.TrimPrefix(pointer, "/"); name {
	case "token", "resource", "host", "taskId", "era", "method", "requestId", "outcome", "owner", "cause",
		"owner/backend", "owner/source", "owner/tool", "owner/session", "owner/lifeMs":
		return name
	}
	return "a member"
}

func (r *LocateRequest) validate() error {
	switch {
	case !ValidID(string(r.Host)):
		return locateError("host is no host's name")
	case r.TaskID == "" || len(r.TaskID) > MaxLocateID || !utf8.ValidString(r.TaskID):
		return locateError("taskId is empty, not UTF-8, or over %d bytes", MaxLocateID)
	case r.Era != LocateModern && r.Era != LocateLegacy:
		return locateError("era is neither modern nor legacy")
	case len(r.Token) > maxLocateJWT:
		return locateError("token is over %d bytes", maxLocateJWT)
	case len(r.Resource) > maxLocateText || len(r.Method) > maxLocateText || len(r.RequestID) > maxLocateText:
		return locateError("resource, method or requestId is over %d bytes", maxLocateText)
	}
	return nil
}

func (a *LocateAnswer) validate() error {
	switch a.Outcome {
	case LocateOwner:
		if a.Owner == nil {
			return locateError("owner is absent")
		}
		if a.Owner.LifeMs > MaxTaskLife.Milliseconds() || a.Owner.For("somebody").Validate() != nil {
			return locateError("owner is not valid")
		}
		return nil
	case LocateMiss, LocateAmbiguous, LocateUnavailable:
		if a.Owner != nil {
			return locateError("owner does not go with outcome %s", a.Outcome)
		}
		return nil
	}
	return locateError("outcome is not known")
}

func locateError(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrLocate}, args...)...)
}
