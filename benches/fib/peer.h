/*
 * What the programs with DPDK's tables have in common: the command's stream of numbers, its clock, and how
 * DPDK is started.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <arpa/inet.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_memory.h>

#define ADDRESSES (1u << 20)
#define BURST 64
#define PASSES 2
#define PREFIXES_MAX (1u << 20)
#define UPDATES 20000
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static uint64_t splitmix64(uint64_t *state)
{
	uint64_t mixed = *state += UINT64_C(0x9e3779b97f4a7c15);

	mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
	return mixed ^ (mixed >> 31);
}

static void die(const char *what)
{
	fprintf(stderr, "peer: %s (%s)\n", what, rte_strerror(rte_errno));
	exit(2);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Pages of 2 MiB for memory that has been touched, where the kernel has them. */
static int collapse(const struct rte_memseg_list *list, void *unused)
{
	(void)unused;
	madvise(list->base_va, list->len, MADV_HUGEPAGE);
	madvise(list->base_va, list->len, MADV_COLLAPSE);
	return 0;
}

static void start_dpdk(void)
{
	static char *eal[] = { "peer", "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry",
		"-m", "2048", "-l", "0", "--log-level", "3", "--force-max-simd-bitwidth=512" };
	cpu_set_t cores;

	sched_getaffinity(0, sizeof cores, &cores);
	if (rte_eal_init(sizeof eal / sizeof *eal, eal) < 0)
		die("rte_eal_init");
	/* DPDK has bound this thread to one core; ours are not bound either. */
	sched_setaffinity(0, sizeof cores, &cores);
}
