// Package kubernetes is a source of backends that is the Services of a cluster, by label and annotation: docs/sources.md.
//
// It uses the dynamic client: the typed one brings every API group of Kubernetes along (250 packages, minutes of compiling). Only
// the program's wiring imports this package, so that nobody else links the cluster's client.
package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/controlplane/internal/source"
)

var services = corev1.SchemeGroupVersion.WithResource("services")

// quiet is how long a burst of events may last before it is reported.
const quiet = 100 * time.Millisecond

// Options of a Source.
type Options struct {
	Config *config.KubernetesSource
	Client dynamic.Interface
}

// Source watches the Services of one cluster.
type Source struct {
	o        Options
	selected bool // by label
}

var _ source.Source = (*Source)(nil)

// Open is the source.Opener of this kind: it reads the kubeconfig, or what a pod is given, and connects to nothing.
func Open(conf *config.Source) (source.Source, error) {
	client, err := clientOf(conf.Kubernetes)
	if err != nil {
		return nil, err
	}
	return New(Options{Config: conf.Kubernetes, Client: client})
}

func clientOf(conf *config.KubernetesSource) (dynamic.Interface, error) {
	var cluster *rest.Config
	var err error
	if conf.Kubeconfig == "" {
		cluster, err = rest.InClusterConfig()
	} else {
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: conf.Kubeconfig}
		cluster, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	cluster.UserAgent = "weir-controlplane"
	return dynamic.NewForConfig(cluster)
}

// New checks the options; it connects to nothing.
func New(o Options) (*Source, error) {
	if o.Config == nil || o.Client == nil {
		return nil, errors.New("kubernetes: Config and Client are required")
	}
	if _, err := labels.Parse(o.Config.Selector); err != nil {
		return nil, fmt.Errorf("selector: %w", err)
	}
	return &Source{o: o, selected: o.Config.Selector != ""}, nil
}

// Run watches until ctx ends. Services that were seen stay while the API server is away: a failure is reported, and no set.
func (s *Source) Run(ctx context.Context, report func(source.Report)) error {
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard())) // what matters of it is reported
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	changed, failed := make(chan struct{}, 1), make(chan error, 1)
	informer, err := s.informer(changed, failed)
	if err != nil {
		return err
	}
	running.Go(func() { informer.RunWithContext(ctx) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			report(source.Report{Err: err})
		case <-changed:
			if !settle(ctx, changed) {
				return nil
			}
			if informer.HasSynced() {
				report(source.Report{Entries: s.entries(informer.GetStore().List())})
			} else {
				signal(changed) // the list is complete in a moment
			}
		}
	}
}

// settle waits until a burst of events is over; false: ctx ended.
func settle(ctx context.Context, changed <-chan struct{}) bool {
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	}
	select {
	case <-changed: // it is in what is read now
	default:
	}
	return true
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *Source) informer(changed chan<- struct{}, failed chan error) (cache.SharedIndexInformer, error) {
	fail := func(err error) {
		if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return // a watch that ran its time, or its end
		}
		select {
		case failed <- err:
		default: // one is about to be reported
		}
	}
	client := s.o.Client.Resource(services).Namespace(s.o.Config.Namespace)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = s.o.Config.Selector
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = s.o.Config.Selector
			w, err := client.Watch(ctx, o)
			if err != nil {
				fail(err) // of a refused connection the informer says nothing: it tries again
				return w, err
			}
			select {
			case <-failed: // it is over before it was reported
			default:
			}
			signal(changed) // also after a failure, when nothing else may have changed
			return w, nil
		},
	}
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, s.o.Client), &unstructured.Unstructured{}, 0, nil)
	err := errors.Join(
		informer.SetTransform(trimmed),
		informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { fail(err) }),
	)
	if err != nil {
		return nil, err
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { signal(changed) },
		UpdateFunc: func(any, any) { signal(changed) },
		DeleteFunc: func(any) { signal(changed) },
	})
	return informer, err
}

// trimmed leaves out of an object what is not looked at.
func trimmed(obj any) (any, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		u.SetManagedFields(nil)
		unstructured.RemoveNestedField(u.Object, "status")
	}
	return obj, nil
}

// entries are the backends of what the informer holds, by namespace and name.
func (s *Source) entries(objects []any) []source.Entry {
	found := []source.Entry{}
	for _, obj := range objects {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		var svc corev1.Service
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &svc); err != nil {
			found = append(found, source.Entry{Origin: "Service " + u.GetNamespace() + "/" + u.GetName(), Fault: errors.New("it can't be read as a Service")})
			continue
		}
		if e, ok := entryOf(&svc, s.selected); ok {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b source.Entry) int {
		return cmp.Or(cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Name, b.Name))
	})
	return found
}
