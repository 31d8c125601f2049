/*
 * A program in C that uses libroadtrain: program ADDRESS:PORT NQN. It writes, reads, flushes, discards, misuses what it
 * can misuse, and says "ok" when all of that went as it has to.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "roadtrain.h"

#define DEPTH 64
#define BYTES 4096

static int line;

static void failed(const char *what, long is)
{
	fprintf(stderr, "line %d: %s is %ld (%s)\n", line, what, is, roadtrain_error());
	exit(1);
}

#define EXPECT(call, wanted)                                  \
	do {                                                  \
		line = __LINE__;                              \
		long is_ = (long)(call);                      \
		if (is_ != (long)(wanted))                    \
			failed(#call, is_);                   \
	} while (0)

/* One request, and what came of it. */
static int one(roadtrain_ring *ring, uint32_t op, uint64_t offset, uint64_t length, void *data)
{
	roadtrain_request request = {.op = op, .offset = offset, .length = length, .data = data, .token = 77};
	roadtrain_completion completion;
	int taken = roadtrain_submit(ring, &request, 1);

	if (taken != 1)
		return taken;
	EXPECT(roadtrain_reap(ring, &completion, 1, -1), 1);
	EXPECT(completion.token, 77);
	return completion.result;
}

static void many(roadtrain_ring *ring, uint32_t op, unsigned char *data)
{
	roadtrain_request requests[DEPTH];
	roadtrain_completion completions[DEPTH];
	unsigned seen[DEPTH] = {0};
	int n, ended = 0;

	for (n = 0; n < DEPTH; n++)
		requests[n] = (roadtrain_request){
			.op = op, .offset = n * BYTES, .length = BYTES, .data = data + n * BYTES, .token = n};
	/* The ring has room for DEPTH: one more is not taken. */
	EXPECT(roadtrain_submit(ring, requests, DEPTH), DEPTH);
	EXPECT(roadtrain_submit(ring, requests, 1), 0);
	while (ended < DEPTH) {
		struct pollfd event = {.fd = roadtrain_ring_fd(ring), .events = POLLIN};
		int count;

		EXPECT(poll(&event, 1, 30000), 1);
		count = roadtrain_reap(ring, completions, 7, 0);
		if (count < 1)
			failed("what was reaped", count);
		for (n = 0; n < count; n++) {
			EXPECT(completions[n].result, 0);
			EXPECT(seen[completions[n].token]++, 0);
		}
		ended += count;
	}
	EXPECT(roadtrain_reap(ring, completions, DEPTH, -1), 0); /* nothing is on its way: no wait */
}

static void misuse(const roadtrain_options *options, roadtrain_disk *disk, roadtrain_ring *ring)
{
	roadtrain_options wrong = *options;
	roadtrain_disk *none;
	roadtrain_ring *other;
	roadtrain_info info = {.size = 1};
	char data[512];

	EXPECT(roadtrain_open(NULL, &none), -EINVAL);
	EXPECT(roadtrain_open(options, NULL), -EINVAL);
	wrong.size = 8;
	EXPECT(roadtrain_open(&wrong, &none), -EINVAL);
	wrong = *options;
	wrong.subsystem_nqn = "nqn.2025-01.io.example:no-such-one";
	EXPECT(roadtrain_open(&wrong, &none), -ECONNREFUSED);
	EXPECT(none == NULL, 1);
	wrong = *options;
	wrong.nsid = 9;
	EXPECT(roadtrain_open(&wrong, &none), -ENODEV);
	wrong = *options;
	wrong.flags = 64;
	EXPECT(roadtrain_open(&wrong, &none), -EINVAL);
	wrong = *options;
	wrong.host_nqn = "not an NQN";
	EXPECT(roadtrain_open(&wrong, &none), -EINVAL);
	EXPECT(strstr(roadtrain_error(), "NQN") != NULL, 1);
	EXPECT(roadtrain_disk_info(disk, NULL), -EINVAL);
	EXPECT(roadtrain_disk_info(disk, &info), -EINVAL);
	EXPECT(roadtrain_disk_info(NULL, &info), -EINVAL);
	EXPECT(roadtrain_ring_new(disk, 0, &other), -EINVAL);
	EXPECT(roadtrain_ring_new(NULL, 1, &other), -EINVAL);
	EXPECT(roadtrain_ring_fd(NULL), -EINVAL);
	EXPECT(roadtrain_ring_free(NULL), -EINVAL);
	EXPECT(roadtrain_submit(ring, NULL, 1), -EINVAL);
	EXPECT(roadtrain_submit(ring, NULL, 0), 0);
	EXPECT(roadtrain_reap(ring, NULL, 1, 0), -EINVAL);
	EXPECT(one(ring, ROADTRAIN_READ, 0, 512, NULL), -EINVAL);
	EXPECT(one(ring, ROADTRAIN_READ, 1, 512, data), -EINVAL);
	EXPECT(one(ring, ROADTRAIN_READ, 1ull << 62, 512, data), -ERANGE);
	EXPECT(one(ring, 99, 0, 512, data), -EINVAL);
	EXPECT(roadtrain_close(disk), -EBUSY); /* its ring is there */
	EXPECT(roadtrain_close(NULL), -EINVAL);
}

int main(int count, char **arguments)
{
	roadtrain_options options = {.size = sizeof(options), .lanes = 2};
	roadtrain_info info = {.size = sizeof(info)};
	roadtrain_disk *disk;
	roadtrain_ring *ring;
	unsigned char *written = malloc(DEPTH * BYTES), *read = malloc(DEPTH * BYTES);
	int n;

	if (count != 3)
		return 2;
	EXPECT(roadtrain_api_version(), ROADTRAIN_API_VERSION);
	options.addresses = arguments[1];
	options.subsystem_nqn = arguments[2];
	options.host_nqn = "nqn.2025-01.io.example:program";
	EXPECT(roadtrain_open(&options, &disk), 0);
	EXPECT(roadtrain_disk_info(disk, &info), 0);
	EXPECT(info.blocks * info.block_bytes, 64ull << 20);
	EXPECT(info.nsid, 1);
	EXPECT(roadtrain_ring_new(disk, DEPTH, &ring), 0);
	misuse(&options, disk, ring);

	for (n = 0; n < DEPTH * BYTES; n++)
		written[n] = n * 31 + n / BYTES;
	many(ring, ROADTRAIN_WRITE, written);
	EXPECT(one(ring, ROADTRAIN_FLUSH, 0, 0, NULL), 0);
	memset(read, 0, DEPTH * BYTES);
	many(ring, ROADTRAIN_READ, read);
	EXPECT(memcmp(read, written, DEPTH * BYTES), 0);
	EXPECT(one(ring, ROADTRAIN_WRITE_ZEROES, BYTES, BYTES, NULL), 0);
	EXPECT(one(ring, ROADTRAIN_READ, BYTES, BYTES, read), 0);
	for (n = 0; n < BYTES; n++)
		EXPECT(read[n], 0);
	EXPECT(one(ring, ROADTRAIN_DISCARD, 0, DEPTH * BYTES, NULL), 0);

	/* Freed while requests are on their way: they end first. */
	{
		roadtrain_request request = {.op = ROADTRAIN_WRITE, .length = BYTES, .data = written};

		EXPECT(roadtrain_submit(ring, &request, 1), 1);
		EXPECT(roadtrain_ring_free(ring), 0);
	}
	EXPECT(roadtrain_close(disk), 0);
	free(written);
	free(read);
	puts("ok");
	return 0;
}
