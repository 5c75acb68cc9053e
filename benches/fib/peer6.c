/*
 * DPDK's forwarding tables of IPv6, asked what `nilometer route bench fib --family 6` asks ours; `peer.c` says
 * how. `without-lpm` leaves out rte_lpm6. What is not there, for want of room or of instructions, is
 * skipped and said.
 */
#include "peer.h"

#include <rte_fib6.h>
#include <rte_lpm6.h>

#define ADDRESS_BYTES 16
/* Far more than are used: rte_fib6 reserves some for each route by its length. */
#define TBL8S (1u << 18)
#define CONTENDERS_MAX 8

static uint8_t addresses[PREFIXES_MAX][ADDRESS_BYTES];
static uint8_t lengths[PREFIXES_MAX];
static uint32_t count;
static uint8_t sets[2][ADDRESSES][ADDRESS_BYTES];

static uint32_t drawn_number(uint64_t *state)
{
	return (uint32_t)(((unsigned __int128)splitmix64(state) * count) >> 64);
}

static void read_prefixes(void)
{
	char line[64];
	long told = fgets(line, sizeof line, stdin) ? atol(line) : 0;

	if (told < 1 || told > (long)PREFIXES_MAX)
		die("no number of prefixes, or too many");
	while (count < (uint32_t)told) {
		char *slash = fgets(line, sizeof line, stdin) ? strchr(line, '/') : NULL;

		if (!slash)
			die("a line without a prefix");
		*slash = 0;
		if (inet_pton(AF_INET6, line, addresses[count]) != 1)
			die("a line that is no prefix of IPv6");
		lengths[count++] = (uint8_t)atoi(slash + 1);
	}
}

/* An address of two numbers of the stream, as it stands in a header. */
static void draw(uint64_t *state, uint8_t *address)
{
	for (int half = 0; half < 2; half++) {
		uint64_t bits = splitmix64(state);

		for (int i = 0; i < 8; i++)
			address[8 * half + i] = (uint8_t)(bits >> (56 - 8 * i));
	}
}

static void draw_addresses(void)
{
	uint64_t state = 1;

	for (uint32_t i = 0; i < ADDRESSES; i++)
		draw(&state, sets[0][i]);
	state = 2;
	for (uint32_t i = 0; i < ADDRESSES; i++) {
		uint32_t number = drawn_number(&state);
		uint8_t *address = sets[1][i];

		draw(&state, address);
		for (int byte = 0; byte < ADDRESS_BYTES; byte++) {
			int own = lengths[number] - 8 * byte;
			uint8_t host = own >= 8 ? 0 : own <= 0 ? 0xff : 0xff >> own;

			address[byte] = (uint8_t)(addresses[number][byte] | (address[byte] & host));
		}
	}
}

struct contender {
	const char *name;
	struct rte_lpm6 *lpm;
	struct rte_fib6 *fib;
	double bytes;
	enum rte_fib6_lookup_type type;
};

static void look_up(struct contender *c, uint8_t ips[][ADDRESS_BYTES], uint64_t *out)
{
	int32_t next[BURST];

	if (c->fib) {
		rte_fib6_lookup_bulk(c->fib, ips, out, BURST);
		return;
	}
	rte_lpm6_lookup_bulk_func(c->lpm, ips, next, BURST);
	for (int i = 0; i < BURST; i++)
		out[i] = next[i] < 0 ? 0 : (uint64_t)next[i];
}

static struct rte_lpm6 *build_lpm(void)
{
	struct rte_lpm6_config config = { .max_rules = PREFIXES_MAX, .number_tbl8s = TBL8S };
	struct rte_lpm6 *lpm = rte_lpm6_create("lpm6", SOCKET_ID_ANY, &config);

	if (!lpm)
		die("rte_lpm6_create");
	for (uint32_t i = 0; i < count; i++)
		if (lengths[i] && rte_lpm6_add(lpm, addresses[i], lengths[i], 1 + i % 64)) {
			rte_lpm6_free(lpm);
			return NULL;
		}
	return lpm;
}

static struct rte_fib6 *build_fib(const char *name, enum rte_fib_trie_nh_sz size, uint32_t tbl8s)
{
	struct rte_fib6_conf config = {
		.type = RTE_FIB6_TRIE,
		.default_nh = 0,
		.max_routes = PREFIXES_MAX,
		.trie = { .nh_sz = size, .num_tbl8 = tbl8s },
	};
	struct rte_fib6 *fib = rte_fib6_create(name, SOCKET_ID_ANY, &config);

	if (!fib)
		die("rte_fib6_create");
	for (uint32_t i = 0; i < count; i++)
		if (rte_fib6_add(fib, addresses[i], lengths[i], 1 + i % 64)) {
			rte_fib6_free(fib);
			return NULL;
		}
	return fib;
}

/* Withdrawals and announcements a second; every route is as before. */
static double update_rate(struct contender *c, int pairs)
{
	uint64_t state = 3;
	double begun = seconds();

	for (int i = 0; i < pairs; i++) {
		uint32_t n = drawn_number(&state);

		if (c->fib) {
			rte_fib6_delete(c->fib, addresses[n], lengths[n]);
			rte_fib6_add(c->fib, addresses[n], lengths[n], 1 + n % 64);
		} else {
			rte_lpm6_delete(c->lpm, addresses[n], lengths[n]);
			rte_lpm6_add(c->lpm, addresses[n], lengths[n], 1 + n % 64);
		}
	}
	return 2.0 * pairs / (seconds() - begun);
}

static double rate(struct contender *c, uint8_t set[][ADDRESS_BYTES])
{
	uint64_t out[BURST];
	double begun;

	if (c->fib)
		rte_fib6_select_lookup(c->fib, c->type);
	begun = seconds();
	for (int pass = 0; pass < PASSES; pass++)
		for (uint32_t i = 0; i < ADDRESSES; i += BURST) {
			look_up(c, set + i, out);
			__asm__ volatile("" : : "r"(out) : "memory");
		}
	return PASSES * (double)ADDRESSES / (seconds() - begun) / 1e6;
}

static uint64_t checksum(struct contender *c, uint8_t set[][ADDRESS_BYTES])
{
	uint64_t out[BURST], sum = 0;

	if (c->fib)
		rte_fib6_select_lookup(c->fib, c->type);
	for (uint32_t i = 0; i < ADDRESSES; i += BURST) {
		look_up(c, set + i, out);
		for (int k = 0; k < BURST; k++)
			sum += out[k];
	}
	return sum;
}

static struct contender contenders[CONTENDERS_MAX];
static int contender_count;

static void enter(struct contender c)
{
	if (c.fib && rte_fib6_select_lookup(c.fib, c.type)) {
		fprintf(stderr, "peer: %s: not on this processor; skipped\n", c.name);
		return;
	}
	contenders[contender_count++] = c;
}

static void enter_all(int with_lpm)
{
	static const char *const names[2][2] = {
		{ "rte_fib_2b_scalar", "rte_fib_2b_avx512" },
		{ "rte_fib_4b_scalar", "rte_fib_4b_avx512" },
	};
	static const enum rte_fib6_lookup_type types[2] = {
		RTE_FIB6_LOOKUP_TRIE_SCALAR, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512,
	};
	struct rte_lpm6 *lpm = with_lpm ? build_lpm() : NULL;

	if (lpm)
		enter((struct contender){ .name = "rte_lpm_bulk", .lpm = lpm,
			.bytes = 4.0 * ((1 << 24) + 256.0 * TBL8S) });
	for (int size = 0; size < 2; size++) {
		/* An entry of two bytes has fifteen bits for the number of a tbl8. */
		uint32_t tbl8s = size ? TBL8S : (1 << 15) - 1;
		struct rte_fib6 *fib = build_fib(names[size][0], (enum rte_fib_trie_nh_sz)(size + 1), tbl8s);

		if (!fib) {
			fprintf(stderr, "peer: %s: has no room for this table\n", names[size][0]);
			continue;
		}
		for (int way = 0; way < 2; way++)
			enter((struct contender){ .name = names[size][way], .fib = fib,
				.type = types[way],
				.bytes = (2 << size) * ((1 << 24) + 256.0 * tbl8s) });
	}
	rte_memseg_list_walk(collapse, NULL);
}

int main(int argc, char **argv)
{
	char line[64];

	start_dpdk();
	read_prefixes();
	draw_addresses();
	enter_all(argc < 2 || strcmp(argv[1], "without-lpm"));
	printf("%d\n", contender_count);
	for (int i = 0; i < contender_count; i++)
		printf("%s %.4f\n", contenders[i].name, contenders[i].bytes / count);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		for (int i = 0; i < contender_count; i++) {
			double random = rate(&contenders[i], sets[0]);

			printf("%.2f %.2f\n", random, rate(&contenders[i], sets[1]));
		}
		fflush(stdout);
	}
	for (int i = 0; i < contender_count; i++) {
		struct contender *c = &contenders[i];
		double updates = update_rate(c, UPDATES / 20);

		printf("%.0f %" PRIu64 " %" PRIu64 "\n", updates, checksum(c, sets[0]), checksum(c, sets[1]));
	}
	return 0;
}
