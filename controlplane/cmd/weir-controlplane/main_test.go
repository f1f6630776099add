package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/weir-mcp/weir/routes/access"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"weir-controlplane": main})
}

// TestScripts runs the command as a user does: testdata/*.txtar.
func TestScripts(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			return writeKeys(env.WorkDir)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"verify": verify},
	})
}

// writeKeys writes an RSA key pair: idp.key and idp.pub.
func writeKeys(dir string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "idp.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "idp.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600)
}

// verify FILE HOST: the token in FILE is good, and for HOST. Negated: it is not.
func verify(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: verify FILE HOST")
	}
	v, err := access.New(access.Options{Config: access.Config{Issuers: []access.Issuer{{
		Issuer: "https://idp.example", Audiences: []string{"weir"}, Algorithms: []string{"RS256"}, PublicKeyFile: ts.MkAbs("idp.pub"),
	}}}})
	ts.Check(err)
	token := ts.ReadFile(args[0])
	id, err := v.Verify(context.Background(), token[:max(len(token)-1, 0)], "")
	good := err == nil && len(id.Hosts) == 1 && string(id.Hosts[0]) == args[1]
	if good == neg {
		ts.Fatalf("identity %+v, error %v", id, err)
	}
}
