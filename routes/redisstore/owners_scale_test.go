package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

// copyTasks gives many tasks the record of one, and puts them into the set of a principal: a hundred thousand calls of RecordTask would
// take a minute. KEYS 1 record, 2 set; ARGV 1 what begins the key of a record; then digests.
const copyTasks = `
local ends = redis.call('PEXPIRETIME', KEYS[1])
for i = 2, #ARGV do
  local key = ARGV[1] .. ARGV[i] .. '}'
  redis.call('COPY', KEYS[1], key)
  redis.call('ZADD', KEYS[2], ends, ARGV[i])
end
return 'OK'`

// A look-up costs the same however many records there are. What Redis itself says that half of them cost is compared, with room for a
// busy machine.
func TestALookUpStaysFlatWithManyRecords(t *testing.T) {
	if testing.Short() {
		t.Skip("it records 100,000 tasks")
	}
	const few, many, each, looks = 1000, 100_000, 1000, 2000
	s := stageOwners(t, routestest.RedisOptions{})
	principal := func(i int) string { return "principal-" + strconv.Itoa(i/each) }
	id := func(i int) string { return "task " + strconv.Itoa(i) }
	fill := func(from, to int) {
		for ; from < to; from += each {
			o := task(principal(from), "files", routes.TaskMinted)
			s.mint(t, id(from), o)
			args := []any{"EVAL", copyTasks, 2, s.keys.task(routes.TaskDigest(id(from))), s.keys.tasks(host, o.Principal), s.keys.prefix + "{task:"}
			for i := from + 1; i < from+each; i++ {
				args = append(args, routes.TaskDigest(id(i)))
			}
			s.redis.Do(args...)
		}
	}
	measure := func(records int) (commands int, median float64) {
		s.look(t, id(0), principal(0)) // Redis knows the script from here on
		s.redis.Do("CONFIG", "RESETSTAT")
		for i := range looks {
			n := i * 7919 % records
			if record := s.look(t, id(n), principal(n)); len(record) != 1 || record[0].Principal != principal(n) {
				t.Fatalf("record %+v", record)
			}
		}
		for line := range strings.Lines(s.redis.Do("INFO", "commandstats")) {
			var calls int
			if name, rest, _ := strings.Cut(line, ":"); name != "cmdstat_config|resetstat" && name != "cmdstat_hello" {
				fmt.Sscanf(rest, "calls=%d", &calls) // the heading has none
			}
			commands += calls
		}
		_, stats, _ := strings.Cut(s.redis.Do("INFO", "latencystats"), "latency_percentiles_usec_evalsha:p50=")
		if _, err := fmt.Sscanf(stats, "%f", &median); err != nil {
			t.Fatalf("no median: %v", err)
		}
		return commands, median
	}
	fill(0, few)
	commands, median := measure(few)
	fill(few, many)
	commandsMany, medianMany := measure(many)
	t.Logf("%d records: %d commands, half of the look-ups in %.1f µs; %d records: %d, %.1f µs", few, commands, median, many, commandsMany, medianMany)
	if want := looks * 3; commands != want || commandsMany != want { // the script, what time it is, the record
		t.Errorf("%d commands, %d with many records; want %d", commands, commandsMany, want)
	}
	if medianMany > 5*median {
		t.Errorf("half of the look-ups take up to %.1f µs, %.1f µs with many records", median, medianMany)
	}
	view, err := s.HostTasks(t.Context(), host, 100)
	if err != nil || view.Count != many || !view.More {
		t.Errorf("HostTasks counts %d, more %v, %v; want %d", view.Count, view.More, err, many)
	}
}
