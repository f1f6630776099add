package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// sample is what one round, or several added up, measured.
type sample struct {
	calls     int
	elapsed   time.Duration
	latencies []time.Duration
}

func (s *sample) add(o sample) {
	s.calls += o.calls
	s.elapsed += o.elapsed
	s.latencies = append(s.latencies, o.latencies...)
}

// perSecond is the throughput over all rounds.
func (s *sample) perSecond() float64 { return float64(s.calls) / s.elapsed.Seconds() }

// quantile sorts the latencies; q is 0 to 1.
func (s *sample) quantile(q float64) time.Duration {
	if len(s.latencies) == 0 {
		return 0
	}
	slices.Sort(s.latencies)
	return s.latencies[min(len(s.latencies)-1, int(q*float64(len(s.latencies))))]
}

// hammer sends request over and over on conns connections of its own for d, one at a time on each. Anything but a 200 that
// contains want is an error: a benchmark of refusals would be a fine number.
func hammer(ctx context.Context, addr string, request []byte, want string, conns int, d time.Duration) (sample, error) {
	var (
		mu   sync.Mutex // guards out and errs
		out  sample
		errs []error
		wg   sync.WaitGroup
	)
	began := time.Now()
	deadline := began.Add(d)
	for range conns {
		wg.Go(func() {
			one, err := loop(ctx, addr, request, want, deadline)
			mu.Lock()
			defer mu.Unlock()
			out.add(one)
			if err != nil {
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	out.elapsed = time.Since(began)
	return out, errors.Join(errs...)
}

func loop(ctx context.Context, addr string, request []byte, want string, deadline time.Time) (sample, error) {
	var s sample
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return s, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	in := bufio.NewReaderSize(conn, 64<<10)
	var body []byte
	for now := time.Now(); s.calls == 0 || now.Before(deadline); { // one call at least
		if _, err := conn.Write(request); err != nil {
			return s, err
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return s, err
		}
		body, err = readInto(body[:0], resp.Body)
		if err != nil {
			return s, err
		}
		if resp.StatusCode != http.StatusOK || !contains(body, want) {
			return s, fmt.Errorf("status %d: %.300s", resp.StatusCode, body)
		}
		then := time.Now()
		s.calls++
		s.latencies = append(s.latencies, then.Sub(now))
		now = then
	}
	return s, nil
}

func readInto(buf []byte, r io.ReadCloser) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, max(4096, cap(buf)))
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			return buf, r.Close()
		}
		if err != nil {
			return buf, errors.Join(err, r.Close())
		}
	}
}

// contains looks at both ends only: answers may have a megabyte.
func contains(body []byte, want string) bool {
	return bytes.Contains(body[:min(len(body), 512)], []byte(want)) || bytes.Contains(body[max(0, len(body)-512):], []byte(want))
}
