/*
 * DPDK's forwarding tables, asked what `nilometer route bench fib` asks ours.
 *
 *     peer [without-lpm]
 *
 * The command starts it (`--peer`), and it takes turns with our tables. Standard input: how many IPv4
 * prefixes there are, the prefixes, one a line, and then an empty line for each round. Standard output: how
 * many tables there are, the name and bytes per prefix of each; in each round of each table million lookups
 * a second by random and by prefix-drawn addresses; when the input ends updates a second and the two
 * checksums of each. Next hops, addresses, bursts, clock and checksums are those of the command (its help
 * says them). Bytes are those of the arrays that lookups read. `without-lpm` leaves out rte_lpm, which takes
 * a minute to be filled with a full table.
 */
#include "peer.h"

#include <rte_fib.h>
#include <rte_lpm.h>
#include <rte_vect.h>

#define TBL8S 8192
#define CONTENDERS_MAX 12

static uint32_t addresses[PREFIXES_MAX], count;
static uint8_t lengths[PREFIXES_MAX];
static uint32_t sets[2][ADDRESSES];

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
		struct in_addr address;
		char *slash = fgets(line, sizeof line, stdin) ? strchr(line, '/') : NULL;

		if (!slash)
			die("a line without a prefix");
		*slash = 0;
		if (inet_pton(AF_INET, line, &address) != 1)
			die("a line that is no prefix of IPv4");
		addresses[count] = ntohl(address.s_addr);
		lengths[count++] = (uint8_t)atoi(slash + 1);
	}
}

static void draw_addresses(void)
{
	uint64_t state = 1;

	for (uint32_t i = 0; i < ADDRESSES; i++)
		sets[0][i] = splitmix64(&state) >> 32;
	state = 2;
	for (uint32_t i = 0; i < ADDRESSES; i++) {
		uint32_t number = drawn_number(&state);
		uint32_t host = splitmix64(&state) >> 32;

		if (lengths[number])
			host &= lengths[number] == 32 ? 0 : UINT32_MAX >> lengths[number];
		sets[1][i] = addresses[number] | host;
	}
}

struct contender {
	const char *name;
	struct rte_lpm *lpm;
	struct rte_fib *fib;
	void (*look_up)(struct contender *, const uint32_t *, uint64_t *);
	double bytes;
	enum rte_fib_lookup_type type;
};

static void lpm_single(struct contender *c, const uint32_t *ips, uint64_t *out)
{
	for (int i = 0; i < BURST; i++) {
		uint32_t next = 0;

		out[i] = rte_lpm_lookup(c->lpm, ips[i], &next) ? 0 : next;
	}
}

static void lpm_bulk(struct contender *c, const uint32_t *ips, uint64_t *out)
{
	uint32_t next[BURST];

	rte_lpm_lookup_bulk(c->lpm, ips, next, BURST);
	for (int i = 0; i < BURST; i++)
		out[i] = next[i] & RTE_LPM_LOOKUP_SUCCESS ? next[i] & 0xffffff : 0;
}

static void lpm_x4(struct contender *c, const uint32_t *ips, uint64_t *out)
{
	uint32_t next[4];

	for (int i = 0; i < BURST; i += 4) {
		rte_xmm_t four;

		memcpy(&four, ips + i, sizeof four);
		rte_lpm_lookupx4(c->lpm, four.x, next, 0);
		for (int k = 0; k < 4; k++)
			out[i + k] = next[k];
	}
}

static void fib_bulk(struct contender *c, const uint32_t *ips, uint64_t *out)
{
	rte_fib_lookup_bulk(c->fib, (uint32_t *)(uintptr_t)ips, out, BURST);
}

static struct rte_lpm *build_lpm(void)
{
	struct rte_lpm_config config = { .max_rules = PREFIXES_MAX, .number_tbl8s = TBL8S };
	struct rte_lpm *lpm = rte_lpm_create("lpm", SOCKET_ID_ANY, &config);

	if (!lpm)
		die("rte_lpm_create");
	for (uint32_t i = 0; i < count; i++)
		if (lengths[i] && rte_lpm_add(lpm, addresses[i], lengths[i], 1 + i % 64))
			die("rte_lpm_add");
	return lpm;
}

static struct rte_fib *build_fib(const char *name, enum rte_fib_dir24_8_nh_sz size)
{
	struct rte_fib_conf config = {
		.type = RTE_FIB_DIR24_8,
		.default_nh = 0,
		.max_routes = PREFIXES_MAX,
		.dir24_8 = { .nh_sz = size, .num_tbl8 = size == RTE_FIB_DIR24_8_1B ? 127 : TBL8S },
	};
	struct rte_fib *fib = rte_fib_create(name, SOCKET_ID_ANY, &config);

	if (!fib)
		die("rte_fib_create");
	for (uint32_t i = 0; i < count; i++)
		if (rte_fib_add(fib, addresses[i], lengths[i], 1 + i % 64)) {
			rte_fib_free(fib);
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
			rte_fib_delete(c->fib, addresses[n], lengths[n]);
			rte_fib_add(c->fib, addresses[n], lengths[n], 1 + n % 64);
		} else {
			rte_lpm_delete(c->lpm, addresses[n], lengths[n]);
			rte_lpm_add(c->lpm, addresses[n], lengths[n], 1 + n % 64);
		}
	}
	return 2.0 * pairs / (seconds() - begun);
}

static double rate(struct contender *c, const uint32_t *set)
{
	uint64_t out[BURST];
	double begun;

	if (c->fib)
		rte_fib_select_lookup(c->fib, c->type);
	begun = seconds();
	for (int pass = 0; pass < PASSES; pass++)
		for (uint32_t i = 0; i < ADDRESSES; i += BURST) {
			c->look_up(c, set + i, out);
			__asm__ volatile("" : : "r"(out) : "memory");
		}
	return PASSES * (double)ADDRESSES / (seconds() - begun) / 1e6;
}

static uint64_t checksum(struct contender *c, const uint32_t *set)
{
	uint64_t out[BURST], sum = 0;

	if (c->fib)
		rte_fib_select_lookup(c->fib, c->type);
	for (uint32_t i = 0; i < ADDRESSES; i += BURST) {
		c->look_up(c, set + i, out);
		for (int k = 0; k < BURST; k++)
			sum += out[k];
	}
	return sum;
}

static struct contender contenders[CONTENDERS_MAX];
static int contender_count;

static void enter(struct contender c)
{
	if (contender_count == CONTENDERS_MAX)
		die("too many contenders");
	if (c.fib && rte_fib_select_lookup(c.fib, c.type)) {
		fprintf(stderr, "peer: %s: not on this processor; skipped\n", c.name);
		return;
	}
	contenders[contender_count++] = c;
}

static void enter_all(int with_lpm)
{
	static const char *const names[4][4] = {
		{ "rte_fib_1b_macro", "rte_fib_1b_inline", "rte_fib_1b_uni", "rte_fib_1b_avx512" },
		{ "rte_fib_2b_macro", "rte_fib_2b_inline", "rte_fib_2b_uni", "rte_fib_2b_avx512" },
		{ "rte_fib_4b_macro", "", "", "rte_fib_4b_avx512" },
		{ "rte_fib_8b_macro", "", "", "rte_fib_8b_avx512" },
	};
	static const enum rte_fib_lookup_type types[4] = {
		RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO, RTE_FIB_LOOKUP_DIR24_8_SCALAR_INLINE,
		RTE_FIB_LOOKUP_DIR24_8_SCALAR_UNI, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512,
	};
	struct rte_lpm *lpm = with_lpm ? build_lpm() : NULL;
	double lpm_bytes = 4.0 * ((1 << 24) + 256.0 * TBL8S);

	if (lpm) {
		enter((struct contender){ .name = "rte_lpm_single", .lpm = lpm,
			.look_up = lpm_single, .bytes = lpm_bytes });
		enter((struct contender){ .name = "rte_lpm_bulk", .lpm = lpm,
			.look_up = lpm_bulk, .bytes = lpm_bytes });
		enter((struct contender){ .name = "rte_lpm_x4", .lpm = lpm,
			.look_up = lpm_x4, .bytes = lpm_bytes });
	}
	for (int size = 0; size < 4; size++) {
		struct rte_fib *fib = build_fib(names[size][0], (enum rte_fib_dir24_8_nh_sz)size);
		double tbl8s = size ? TBL8S : 127;

		if (!fib) {
			fprintf(stderr, "peer: %s: has no room for this table\n", names[size][0]);
			continue;
		}
		for (int way = 0; way < 4; way++)
			if (names[size][way][0])
				enter((struct contender){ .name = names[size][way], .fib = fib,
					.look_up = fib_bulk, .type = types[way],
					.bytes = (1 << size) * ((1 << 24) + 256.0 * tbl8s) });
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
		double updates = update_rate(c, c->fib ? UPDATES : UPDATES / 20);

		printf("%.0f %" PRIu64 " %" PRIu64 "\n", updates, checksum(c, sets[0]), checksum(c, sets[1]));
	}
	return 0;
}
