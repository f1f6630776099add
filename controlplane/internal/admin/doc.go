// Package admin is the operators' API of a control plane: what it knows, what it published, what is wrong, and where a call
// would go. docs/admin-api.md describes each endpoint.
//
// It denies by default: without a configured token every request is refused, and every request is checked before its path is
// looked at. Answers and errors are JSON. What is described and not built yet answers 501.
package admin
