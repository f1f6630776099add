package admin

import (
	"encoding/json"
	"net/http"

	"github.com/weir-mcp/weir/docs/openapi"
)

// openAPI serves the description of this API.
func (a *API) openAPI(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, json.RawMessage(openapi.Admin))
}
