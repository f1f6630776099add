package standalone

import (
	"net/http"
	"slices"
)

// delegated are the methods that the control plane answers (DESIGN § 7), by the name that Mcp-Method carries.
var delegated = []string{
	"tools/list", "prompts/list", "resources/list", "resources/templates/list", "completion/complete",
	"subscriptions/listen", "resources/subscribe", "resources/unsubscribe", "logging/setLevel", "tasks/list",
}

// front is what a load balancer would be in front of the two planes: it sends a delegated method to the control plane by
// its Mcp-Method header. A request without that header (a legacy client's) goes to the dataplane, which reads the method in
// the body and hands a delegated one over in the process. A header that contradicts the body is refused by either plane.
func front(data, control http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m := r.Header["Mcp-Method"]; len(m) == 1 && slices.Contains(delegated, m[0]) {
			control.ServeHTTP(w, r)
			return
		}
		data.ServeHTTP(w, r)
	})
}
