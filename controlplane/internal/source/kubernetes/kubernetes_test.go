package kubernetes

import (
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/controlplane/internal/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is a Service in namespace mcp with one port.
func service(name string, annotations map[string]string, edit ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "mcp", Annotations: annotations},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.0.0.7", Ports: []corev1.ServicePort{{Name: "web", Port: 8080}}},
	}
	for _, e := range edit {
		e(svc)
	}
	return svc
}

func ports(ports ...corev1.ServicePort) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Ports = ports }
}

func TestEntryOf(t *testing.T) {
	https := "https"
	yes := func(more ...string) map[string]string {
		a := map[string]string{"weir.dev/backend": "true"}
		for i := 0; i < len(more); i += 2 {
			a["weir.dev/"+more[i]] = more[i+1]
		}
		return a
	}
	for name, tt := range map[string]struct {
		svc      *corev1.Service
		selected bool
		want     string // NAME PREFIX URL, or the fault; empty: it is none
	}{
		"annotated":                     {svc: service("files", yes()), want: "files.mcp  http://files.mcp.svc:8080/mcp"},
		"not annotated":                 {svc: service("files", nil)},
		"selected by label":             {svc: service("files", nil), selected: true, want: "files.mcp  http://files.mcp.svc:8080/mcp"},
		"selected, and opts out":        {svc: service("files", map[string]string{"weir.dev/backend": "false"}), selected: true},
		"an annotation that is no word": {svc: service("files", map[string]string{"weir.dev/backend": "yes"})},
		"everything said": {
			svc: service("files", yes("name", "f", "prefix", "f_", "scheme", "https", "path", "/a/b", "port", "9"), ports(
				corev1.ServicePort{Name: "a", Port: 8}, corev1.ServicePort{Name: "b", Port: 9})),
			want: "f f_ https://files.mcp.svc:9/a/b",
		},
		"a port by its name": {
			svc:  service("files", yes("port", "b"), ports(corev1.ServicePort{Name: "a", Port: 8}, corev1.ServicePort{Name: "b", Port: 9})),
			want: "files.mcp  http://files.mcp.svc:9/mcp",
		},
		"the port named mcp": {
			svc:  service("files", yes(), ports(corev1.ServicePort{Name: "a", Port: 8}, corev1.ServicePort{Name: "mcp", Port: 9})),
			want: "files.mcp  http://files.mcp.svc:9/mcp",
		},
		"https by the port's protocol": {
			svc:  service("files", yes(), ports(corev1.ServicePort{Port: 443, AppProtocol: &https})),
			want: "files.mcp  https://files.mcp.svc:443/mcp",
		},
		"headless: the pods' own port": {
			svc: service("files", yes(), ports(corev1.ServicePort{Port: 80, TargetPort: intstr.FromInt32(7000)}),
				func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }),
			want: "files.mcp  http://files.mcp.svc:7000/mcp",
		},
		"several ports":        {svc: service("files", yes(), ports(corev1.ServicePort{Name: "a", Port: 8}, corev1.ServicePort{Name: "b", Port: 9})), want: "it has 2 ports"},
		"no such port":         {svc: service("files", yes("port", "7")), want: "names no TCP port"},
		"a UDP port":           {svc: service("files", yes(), ports(corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP})), want: "it has 1 ports"},
		"a strange scheme":     {svc: service("files", yes("scheme", "ftp")), want: "neither http nor https"},
		"a path with a query":  {svc: service("files", yes("path", "/a?b")), want: "not a path"},
		"a path that is none":  {svc: service("files", yes("path", "@evil.example/")), want: "not a path"},
		"a reference":          {svc: service("files", yes("path", "/${env:SECRET}")), want: "secret reference"},
		"leads out":            {svc: service("files", yes(), func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }), want: "ExternalName"},
		"it is being deleted":  {svc: service("files", yes(), func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{} })},
		"another's annotation": {svc: service("files", map[string]string{"other.dev/backend": "true"})},
	} {
		t.Run(name, func(t *testing.T) {
			e, ok := entryOf(tt.svc, tt.selected)
			got := ""
			switch {
			case e.Fault != nil:
				got = e.Fault.Error()
			case ok:
				got = e.Name + " " + e.Prefix + " " + e.URL
			}
			if ok != (tt.want != "") || !strings.Contains(got, tt.want) || e.Fault == nil && got != tt.want {
				t.Errorf("%v %q, want %q", ok, got, tt.want)
			}
		})
	}
}

// cluster is a fake API server with a running source.
type cluster struct {
	client  *fake.FakeDynamicClient
	reports chan source.Report
	down    atomic.Bool
}

func newCluster(t *testing.T, conf *config.KubernetesSource, begin func(*cluster), objects ...runtime.Object) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := &cluster{client: fake.NewSimpleDynamicClient(scheme, objects...), reports: make(chan source.Report)}
	begin(c)
	fail := func(clienttesting.Action) (bool, runtime.Object, error) {
		return c.down.Load(), nil, apierrors.NewServiceUnavailable("the API server is away")
	}
	c.client.PrependReactor("list", "services", fail)
	s, err := New(Options{Config: conf, Client: c.client})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.Run(ctx, func(r source.Report) {
			select {
			case c.reports <- r:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return c
}

// well begins with an API server that answers.
func well(*cluster) {}

// until reads reports until one has just these backends.
func (c *cluster) until(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for !slices.Equal(got, want) || got == nil {
		select {
		case r := <-c.reports:
			if r.Err != nil {
				continue
			}
			got = []string{}
			for _, e := range r.Entries {
				got = append(got, e.Name)
			}
		case <-t.Context().Done():
			t.Fatalf("backends = %v, want %v", got, want)
		}
	}
}

func object(t *testing.T, svc *corev1.Service) *unstructured.Unstructured {
	t.Helper()
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(svc)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: u}
}

func TestFollowsServices(t *testing.T) {
	annotated := map[string]string{annotationBackend: "true"}
	c := newCluster(t, &config.KubernetesSource{Namespace: "mcp"}, well, service("a", annotated), service("other", nil),
		service("elsewhere", annotated, func(s *corev1.Service) { s.Namespace = "another" }))
	services := c.client.Resource(services).Namespace("mcp")
	c.until(t, "a.mcp")
	if _, err := services.Create(t.Context(), object(t, service("b", annotated)), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.until(t, "a.mcp", "b.mcp")
	if _, err := services.Update(t.Context(), object(t, service("a", map[string]string{annotationBackend: "true", annotationName: "z"})), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.until(t, "z", "b.mcp") // in the order of the Services; sets are by id
	if err := services.Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.until(t, "z")
	if err := services.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.until(t)
}

func TestASelectorIsTheAPIServersToApply(t *testing.T) {
	labelled := service("a", nil, func(s *corev1.Service) { s.Labels = map[string]string{"mcp": "yes"} })
	c := newCluster(t, &config.KubernetesSource{Selector: "mcp=yes"}, well, labelled, service("b", map[string]string{annotationBackend: "true"}))
	c.until(t, "a.mcp")
}

func TestAnAPIServerThatIsAwayIsAFailureAndNoEmptySet(t *testing.T) {
	annotated := map[string]string{annotationBackend: "true"}
	c := newCluster(t, &config.KubernetesSource{}, func(c *cluster) { c.down.Store(true) }, service("a", annotated))
	for range 2 {
		if r := <-c.reports; r.Err == nil || !strings.Contains(r.Err.Error(), "away") {
			t.Errorf("report %+v, want a failure", r)
		}
	}
	c.down.Store(false)
	c.until(t, "a.mcp")
}

// An API server that dies refuses connections, of which the informer says nothing.
func TestAnAPIServerThatDiesIsAFailure(t *testing.T) {
	var dead atomic.Bool
	var first atomic.Pointer[watch.FakeWatcher]
	c := newCluster(t, &config.KubernetesSource{}, func(c *cluster) {
		c.client.PrependWatchReactor("services", func(clienttesting.Action) (bool, watch.Interface, error) {
			if dead.Load() {
				return true, nil, &url.Error{Op: "Get", URL: "https://api", Err: &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}}
			}
			w := watch.NewFake()
			return first.CompareAndSwap(nil, w), w, nil // later ones are the client's own
		})
	}, service("a", map[string]string{annotationBackend: "true"}))
	c.until(t, "a.mcp")
	dead.Store(true)
	first.Load().Stop()
	for r := range c.reports {
		if r.Err != nil {
			if !strings.Contains(r.Err.Error(), "connection refused") {
				t.Errorf("report %v, want the refused connection", r.Err)
			}
			break
		}
	}
	dead.Store(false)
	c.until(t, "a.mcp")
}

func TestOpen(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(kubeconfig, []byte(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: hunter2}}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for name, tt := range map[string]struct {
		conf config.KubernetesSource
		err  string
	}{
		"a kubeconfig":            {conf: config.KubernetesSource{Kubeconfig: kubeconfig, Selector: "a in (b,c)"}},
		"one that is not there":   {conf: config.KubernetesSource{Kubeconfig: kubeconfig + "x"}, err: "kubeconfig: "},
		"not in a pod":            {conf: config.KubernetesSource{}, err: "kubeconfig: "},
		"a selector that is none": {conf: config.KubernetesSource{Kubeconfig: kubeconfig, Selector: "a b"}, err: "selector: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(&config.Source{Name: "k", Kubernetes: &tt.conf})
			if got := err != nil; got != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}
