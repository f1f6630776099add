package routestest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-mcp/weir/routes/routestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryKeepsTheContract(t *testing.T) {
	routestest.Contract(t, func(*testing.T) routestest.Fixture {
		m := routestest.NewMemory()
		return routestest.Fixture{
			NewWriter: func(*testing.T) routestest.Writer { return m },
			NewReader: func(*testing.T) routestest.Reader { return m },
			Flush:     func(*testing.T) { m.Flush() },
		}
	})
}
