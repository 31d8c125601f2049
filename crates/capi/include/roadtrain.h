/*
 * libroadtrain: namespaces of NVMe/TCP targets for programs in C.
 *
 * A program opens a disk, makes a ring, submits requests, and reaps completions. Each request that was taken has exactly
 * one completion. When the connection is lost requests wait for the next one; they fail with -EIO after the
 * controller-loss timeout.
 *
 * Errors are negative numbers of errno.h; roadtrain_error() says more about the last one of the calling thread.
 *
 * Threads: a disk may be used by any number of threads. A ring belongs to one thread at a time: another call that comes
 * meanwhile is refused with -EBUSY. The library has threads of its own and calls nothing of the program.
 * A process that was forked may not use what its parent has opened.
 *
 * Memory of a request's data stays valid, and of reads is left alone, from its submission until its completion was
 * reaped, or the ring was freed. Handles are good until they are freed; NULL is refused.
 */

#ifndef ROADTRAIN_H
#define ROADTRAIN_H

/* Made by cbindgen of crates/capi/src: change abi.rs or types.rs, and run scripts/capi-header.sh. */

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

/*
 Version of this interface; grows when something is added.
 */
#define ROADTRAIN_API_VERSION 1

/*
 Fill the data from the namespace.
 */
#define ROADTRAIN_READ 0

/*
 Write the data.
 */
#define ROADTRAIN_WRITE 1

/*
 Put all that was acknowledged on stable storage.
 */
#define ROADTRAIN_FLUSH 2

/*
 The blocks are not needed any more.
 */
#define ROADTRAIN_DISCARD 3

/*
 Set the blocks to zero.
 */
#define ROADTRAIN_WRITE_ZEROES 4

/*
 Flag of a request: answered when on stable storage (FUA).
 */
#define ROADTRAIN_FUA 1

/*
 Flag of a request: sent at once, without waiting for others.
 */
#define ROADTRAIN_URGENT 2

/*
 Flag of a disk: header digests.
 */
#define ROADTRAIN_HDGST 1

/*
 Flag of a disk: data digests.
 */
#define ROADTRAIN_DDGST 2

/*
 A namespace of a connected controller.
 */
typedef struct roadtrain_disk roadtrain_disk;

/*
 Requests on their way, and completions that nobody has reaped.
 */
typedef struct roadtrain_ring roadtrain_ring;

/*
 Options of a disk. Zeroes and NULL mean the defaults, except where something is needed.
 */
typedef struct roadtrain_options {
  /*
   sizeof(struct roadtrain_options): says which fields there are.
   */
  size_t size;
  /*
   Needed: where the target is, as "192.0.2.7:4420" or "[2001:db8::7]:4420"; several paths with commas between.
   */
  const char *addresses;
  /*
   Needed: the subsystem's NQN.
   */
  const char *subsystem_nqn;
  /*
   NQN of this host; NULL: as /etc/nvme/hostnqn says, or made of the machine's id.
   */
  const char *host_nqn;
  /*
   Cores for the library's reactors, as "0,2"; NULL: one reactor, not pinned.
   */
  const char *cores;
  /*
   Namespace; 0: the first.
   */
  uint32_t nsid;
  /*
   I/O queues, each with a connection; 0: one for each core, or one.
   */
  uint32_t lanes;
  /*
   Entries of each; 0: 128.
   */
  uint32_t queue_entries;
  /*
   ROADTRAIN_HDGST, ROADTRAIN_DDGST.
   */
  uint32_t flags;
  /*
   Keep-alive timeout; 0: 5000.
   */
  uint32_t keep_alive_ms;
  /*
   Requests fail when the controller has been gone so long; 0: 600000; UINT32_MAX: never.
   */
  uint32_t controller_loss_ms;
} roadtrain_options;

/*
 Properties of a disk. It may grow: read them again.
 */
typedef struct roadtrain_info {
  /*
   sizeof(struct roadtrain_info), set by the caller.
   */
  size_t size;
  /*
   Logical blocks.
   */
  uint64_t blocks;
  /*
   Bytes of a logical block.
   */
  uint32_t block_bytes;
  /*
   Most bytes of one read or write.
   */
  uint32_t transfer_bytes_max;
  /*
   Namespace.
   */
  uint32_t nsid;
  /*
   1: writes are refused.
   */
  uint32_t read_only;
} roadtrain_info;

/*
 A request.
 */
typedef struct roadtrain_request {
  /*
   ROADTRAIN_READ and so on.
   */
  uint32_t op;
  /*
   ROADTRAIN_FUA, ROADTRAIN_URGENT.
   */
  uint32_t flags;
  /*
   First byte: a multiple of block_bytes. 0 for a flush.
   */
  uint64_t offset;
  /*
   Bytes: a multiple of block_bytes. 0 for a flush.
   */
  uint64_t length;
  /*
   Data to write, or place to read to: length bytes. NULL for others than reads and writes.
   */
  uint8_t *data;
  /*
   The caller's own mark.
   */
  uint64_t token;
} roadtrain_request;

/*
 A request's end.
 */
typedef struct roadtrain_completion {
  /*
   The request's.
   */
  uint64_t token;
  /*
   0, or a negative number of errno.h.
   */
  int32_t result;
  /*
   NVMe's status of it: type in bits 10:8, code in bits 7:0, Do Not Retry in bit 14.
   */
  uint32_t status;
  /*
   From submission to completion.
   */
  uint64_t latency_ns;
} roadtrain_completion;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The interface's version that the library has: at least the ROADTRAIN_API_VERSION that a program was built with.
 */
uint32_t roadtrain_api_version(void);

/*
 What was wrong with the last call of this thread that failed; never NULL, valid until the next call of this thread.
 */
const char *roadtrain_error(void);

/*
 Connects to a namespace. -EINVAL: an option makes no sense; -ENODEV: no such namespace; -ECONNREFUSED: no connection;
 -EACCES: the target refuses this host.

 # Safety
 `options` points to options of the size that they say, with strings that end with NUL; `disk` to a pointer.
 */
int roadtrain_open(const struct roadtrain_options *options,
                   struct roadtrain_disk **disk);

/*
 Ends a disk's connection. -EBUSY: a ring of it is still there.

 # Safety
 `disk` is of roadtrain_open, and is not used any more, not even by another thread.
 */
int roadtrain_close(struct roadtrain_disk *disk);

/*
 Says what a disk is like. -ENODEV: the namespace is gone.

 # Safety
 `disk` is of roadtrain_open; `info` points to as many octets as its size says.
 */
int roadtrain_disk_info(const struct roadtrain_disk *disk, struct roadtrain_info *info);

/*
 Makes a ring for up to `entries` requests (1 to 65536) that are not reaped yet.

 # Safety
 `disk` is of roadtrain_open; `ring` points to a pointer.
 */
int roadtrain_ring_new(const struct roadtrain_disk *disk, uint32_t entries, struct roadtrain_ring **ring);

/*
 Waits until all requests of a ring have ended, forgets their completions, and frees it.

 # Safety
 `ring` is of roadtrain_ring_new, and is not used any more, not even by another thread.
 */
int roadtrain_ring_free(struct roadtrain_ring *ring);

/*
 An event descriptor that is readable while there are completions, for poll and epoll. It is the ring's: it is not to
 be read or closed.

 # Safety
 `ring` is of roadtrain_ring_new.
 */
int roadtrain_ring_fd(const struct roadtrain_ring *ring);

/*
 Submits up to `count` requests in their order; says how many were taken, fewer when the ring is full. A request that
 makes no sense is not taken: if it is the first, -EINVAL, or -ERANGE when it is outside the disk.

 # Safety
 `ring` is of roadtrain_ring_new; `requests` points to `count` requests, whose data is as the header says.
 */
int roadtrain_submit(struct roadtrain_ring *ring,
                     const struct roadtrain_request *requests,
                     uint32_t count);

/*
 Takes up to `count` completions, and waits for the first of them for `timeout_ms`: 0 does not wait, -1 waits for ever.
 Says how many there are: 0 after the timeout, or when nothing is on its way.

 # Safety
 `ring` is of roadtrain_ring_new; `completions` points to room for `count`.
 */
int roadtrain_reap(struct roadtrain_ring *ring,
                   struct roadtrain_completion *completions,
                   uint32_t count,
                   int timeout_ms);

#ifdef __cplusplus
} // extern "C"
#endif // __cplusplus

#endif /* ROADTRAIN_H */
