/*
 * For tests: processes that use the shared memory of ttwin.h as kernels do. They have events of their
 * own and send each other messages over the links, and each hashes what happens to it and when.
 *
 *	kernels_as_processes FILE CORES STOP_NS
 *
 * prints each kernel's hash. With 0 cores one process carries out all events in order, and uses
 * neither windows nor rings.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ttwin.h"

typedef unsigned long long u64;

struct event {
	u64 at_ns, from, sequence, content;
};

#define MOST_EVENTS 100000

static struct state {
	struct event waiting[MOST_EVENTS];	/* a heap: the first event is the first element */
	int events;
	u64 hash, sent;
} *states;

static struct ttwin *w;

static u64 mixed(u64 x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdULL;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ULL;
	return x ^ x >> 33;
}

static int is_before(const struct event *one, const struct event *other)
{
	if (one->at_ns != other->at_ns)
		return one->at_ns < other->at_ns;
	if (one->from != other->from)
		return one->from < other->from;
	return one->sequence < other->sequence;
}

static void add(struct state *s, struct event event)
{
	int place = s->events++;

	for (; place && is_before(&event, &s->waiting[(place - 1) / 2]); place = (place - 1) / 2)
		s->waiting[place] = s->waiting[(place - 1) / 2];
	s->waiting[place] = event;
}

static struct event take(struct state *s)
{
	struct event first = s->waiting[0], last = s->waiting[--s->events];
	int place = 0, child;

	while ((child = 2 * place + 1) < s->events) {
		if (child + 1 < s->events && is_before(&s->waiting[child + 1], &s->waiting[child]))
			child++;
		if (!is_before(&s->waiting[child], &last))
			break;
		s->waiting[place] = s->waiting[child];
		place = child;
	}
	s->waiting[place] = last;
	return first;
}

/* Carry out an event; returns to whom a message goes, which is `me` for an event of its own. */
static int carry_out(int me, struct event event, struct event *next)
{
	struct state *s = &states[me];
	int to = me;
	u64 after_ns, chance;

	s->hash = mixed(s->hash ^ mixed(event.at_ns) ^ mixed(event.content + 77 * event.from));
	chance = mixed(s->hash);
	after_ns = 1000 + chance / 64 % 3000000;
	if (w->links) {
		struct ttwin_link *link = &w->link[chance % w->links];
		int end = link->ends[1] == me;

		if (link->ends[end] == me) {
			to = link->ends[!end];
			after_ns = link->delay_ns[end] + chance / 64 % 5000000 * (chance >> 63);
		}
	}
	*next = (struct event){ event.at_ns + after_ns, me, s->sent++, chance };
	return to;
}

static void one_after_the_other(u64 stop_ns)
{
	for (;;) {
		struct event event, next;
		int i, first = -1;

		for (i = 0; i < (int)w->kernels; i++)
			if (states[i].events &&
			    (first < 0 || is_before(states[i].waiting, states[first].waiting)))
				first = i;
		if (first < 0)
			return;
		event = take(&states[first]);
		i = carry_out(first, event, &next);
		if (event.at_ns <= stop_ns)
			add(&states[i], next);
	}
}

static void send(int me, int to, struct event event)
{
	struct ttwin_ring *r = &w->ring[me][to];

	memcpy(ttwin_data(w, me, to) + (r->head & (w->ring_bytes - 1)), &event, sizeof(event));
	r->head += sizeof(event);
	if (!(w->k[me].sent & 1ULL << to) || event.at_ns < r->first)
		r->first = event.at_ns;
	w->k[me].sent |= 1ULL << to;
}

static void receive(int me, u64 now_ns)
{
	int from;

	w->k[me].unread = 0;
	for (from = 0; from < (int)w->kernels; from++) {
		struct ttwin_ring *r = &w->ring[from][me];

		for (; r->tail < r->limit; r->tail += sizeof(struct event)) {
			struct event event;

			memcpy(&event, ttwin_data(w, from, me) + (r->tail & (w->ring_bytes - 1)),
			       sizeof(event));
			if (event.at_ns < now_ns) {
				printf("too late: %llu at %llu\n", event.at_ns, now_ns);
				_exit(1);
			}
			add(&states[me], event);
		}
	}
}

static void with_others(int me, u64 stop_ns)
{
	struct state *s = &states[me];
	u64 end_ns = 0, now_ns = 0;

	while (s->events || end_ns != TTWIN_NEVER) {
		u64 first_ns = s->events ? s->waiting[0].at_ns : TTWIN_NEVER;
		struct event event, next;
		int to;

		if (first_ns >= end_ns) {
			end_ns = ttwin_meet(w, me, first_ns);
			receive(me, now_ns);
			continue;
		}
		event = take(s);
		now_ns = event.at_ns;
		to = carry_out(me, event, &next);
		if (event.at_ns > stop_ns)
			continue;
		if (to == me)
			add(s, next);
		else
			send(me, to, next);
	}
	ttwin_leave(w, me);
}

static int all_at_once(int cores, u64 stop_ns)
{
	int i, status, failed = 0;

	for (i = 0; i < (int)w->kernels; i++) {
		cpu_set_t core;

		if (fork())
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		CPU_ZERO(&core);
		CPU_SET(i % cores, &core);
		sched_setaffinity(0, sizeof(core), &core);
		with_others(i, stop_ns);
		_exit(0);
	}
	while (wait(&status) > 0)
		failed |= status;
	return failed;
}

int main(int count, char **words)
{
	int i, number, cores, failed = 0;
	u64 stop_ns;

	if (count != 4 || !(w = ttwin_attach(words[1])))
		return 2;
	cores = atoi(words[2]);
	stop_ns = strtoull(words[3], NULL, 10);
	states = mmap(NULL, w->kernels * sizeof(*states), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (i = 0; i < (int)w->kernels; i++)
		for (number = 0; number < 3; number++)
			add(&states[i], (struct event){ 1000 + 10 * i + number, i,
							states[i].sent++, 100 * i + number });
	if (cores)
		failed = all_at_once(cores, stop_ns);
	else
		one_after_the_other(stop_ns);
	for (i = 0; i < (int)w->kernels; i++)
		printf("%llx\n", states[i].hash);
	return failed != 0;
}
