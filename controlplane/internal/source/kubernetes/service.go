package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weir-mcp/weir/controlplane/internal/source"
)

// The annotations of a Service: docs/sources.md.
const (
	annotationBackend = "weir.dev/backend" // "true": take it, "false": don't
	annotationName    = "weir.dev/name"    // the backend's id
	annotationPort    = "weir.dev/port"    // by number or name
	annotationScheme  = "weir.dev/scheme"  // http or https
	annotationPath    = "weir.dev/path"
	annotationPrefix  = "weir.dev/prefix" // suggested for the backend's names
)

// portName is the port that is taken of several, if no annotation says otherwise.
const portName = "mcp"

// entryOf makes a backend of a Service; false: it is not one that Weir is to have. selected says that the config selects Services by
// label, so that they need no annotation besides.
func entryOf(svc *corev1.Service, selected bool) (source.Entry, bool) {
	a := svc.Annotations
	if wanted := a[annotationBackend]; wanted == "false" || wanted != "true" && !selected || svc.DeletionTimestamp != nil {
		return source.Entry{}, false
	}
	e := source.Entry{
		Name:   cmp.Or(a[annotationName], svc.Name+"."+svc.Namespace),
		Prefix: a[annotationPrefix],
		Origin: "Service " + svc.Namespace + "/" + svc.Name,
	}
	e.URL, e.Fault = urlOf(svc)
	return e, true
}

func urlOf(svc *corev1.Service) (string, error) {
	for name, value := range svc.Annotations {
		if strings.HasPrefix(name, "weir.dev/") && strings.Contains(value, "${") {
			return "", fmt.Errorf("annotation %s holds a secret reference, which no source may give", name)
		}
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return "", errors.New("it is an ExternalName Service, which leads out of the cluster")
	}
	port, err := portOf(svc)
	if err != nil {
		return "", err
	}
	scheme := "http"
	if port.AppProtocol != nil && *port.AppProtocol == "https" {
		scheme = "https"
	}
	if s, ok := svc.Annotations[annotationScheme]; ok {
		if s != "http" && s != "https" {
			return "", fmt.Errorf("annotation %s is neither http nor https", annotationScheme)
		}
		scheme = s
	}
	path := cmp.Or(svc.Annotations[annotationPath], "/mcp")
	if path[0] != '/' || strings.ContainsAny(path, "?#\\ ") {
		return "", fmt.Errorf("annotation %s is not a path such as /mcp", annotationPath)
	}
	number := int(port.Port)
	if svc.Spec.ClusterIP == corev1.ClusterIPNone && port.TargetPort.Type == intstr.Int && port.TargetPort.IntVal != 0 {
		number = int(port.TargetPort.IntVal) // the name leads to the pods themselves
	}
	host := svc.Name + "." + svc.Namespace + ".svc"
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(number)) + path, nil
}

// portOf is the port that the annotation names, else the only one, else the one named mcp.
func portOf(svc *corev1.Service) (*corev1.ServicePort, error) {
	want, named := svc.Annotations[annotationPort]
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		switch {
		case p.Protocol != "" && p.Protocol != corev1.ProtocolTCP:
		case named && (p.Name == want || strconv.Itoa(int(p.Port)) == want),
			!named && (p.Name == portName || len(svc.Spec.Ports) == 1):
			return p, nil
		}
	}
	if named {
		return nil, fmt.Errorf("annotation %s names no TCP port of it", annotationPort)
	}
	return nil, fmt.Errorf("it has %d ports; annotation %s has to say which, or one has to be named %q", len(svc.Spec.Ports), annotationPort, portName)
}
