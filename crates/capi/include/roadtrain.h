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
 Version of this interface; grows with each addition.
 */
#define ROADTRAIN_API_VERSION 1

/*
 Reads the data from the namespace.
 */
#define ROADTRAIN_READ 0

/*
 Writes the data.
 */
#define ROADTRAIN_WRITE 1

/*
 Puts all acknowledged writes on stable storage.
 */
#define ROADTRAIN_FLUSH 2

/*
 Marks the blocks as not needed.
 */
#define ROADTRAIN_DISCARD 3

/*
 Sets the blocks to zero.
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
 Requests in flight, and completions that the program has not reaped.
 */
typedef struct roadtrain_ring roadtrain_ring;

/*
 Options of a disk. Zeroes and NULL stand for the defaults, except in required fields.
 */
typedef struct roadtrain_options {
  /*
   sizeof(struct roadtrain_options): the library takes the fields within it.
   */
  size_t size;
  /*
   Required: address of the target, as "192.0.2.7:4420" or "[2001:db8::7]:4420"; several paths separated by commas.
   */
  const char *addresses;
  /*
   Required: the subsystem's NQN.
   */
  const char *subsystem_nqn;
  /*
   NQN of this host; NULL: the one in /etc/nvme/hostnqn, or one made of the machine's id.
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
   Keep-alive timeout in ms; 0: 5000.
   */
  uint32_t keep_alive_ms;
  /*
   Time in ms after which requests fail while the controller is unreachable; 0: 600000; UINT32_MAX: never.
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
   Capacity in logical blocks.
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
   NSID.
   */
  uint32_t nsid;
  /*
   1 if writes are refused.
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
   Offset of the first byte: a multiple of block_bytes. 0 for a flush.
   */
  uint64_t offset;
  /*
   Length in bytes: a multiple of block_bytes. 0 for a flush.
   */
  uint64_t length;
  /*
   Data to write, or buffer for a read: length bytes. NULL for other requests.
   */
  uint8_t *data;
  /*
   Token for the caller's use.
   */
  uint64_t token;
} roadtrain_request;

/*
 Completion of a request.
 */
typedef struct roadtrain_completion {
  /*
   Token of the request.
   */
  uint64_t token;
  /*
   0, or a negative number of errno.h.
   */
  int32_t result;
  /*
   NVMe status: type in bits 10:8, code in bits 7:0, Do Not Retry in bit 14.
   */
  uint32_t status;
  /*
   Time from submission to completion, in ns.
   */
  uint64_t latency_ns;
} roadtrain_completion;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Returns the version of the library's interface: at least the ROADTRAIN_API_VERSION that a program was built with.
 */
uint32_t roadtrain_api_version(void);

/*
 Returns the text of the last error of the calling thread; never NULL, valid until the next call of this thread.
 */
const char *roadtrain_error(void);

/*
 Connects to a namespace. -EINVAL: invalid option; -ENODEV: no such namespace; -ECONNREFUSED: no connection; -EACCES:
 the target refuses this host.

 # Safety
 `options` points to options of the size that they declare, with strings that end with NUL; `disk` to a pointer.
 */
int roadtrain_open(const struct roadtrain_options *options,
                   struct roadtrain_disk **disk);

/*
 Closes a disk's connection. -EBUSY: the disk still has a ring.

 # Safety
 `disk` comes from roadtrain_open, and has no user any more, on any thread.
 */
int roadtrain_close(struct roadtrain_disk *disk);

/*
 Returns the properties of a disk. -ENODEV: the namespace is gone.

 # Safety
 `disk` comes from roadtrain_open; `info` points to as many bytes as its size declares.
 */
int roadtrain_disk_info(const struct roadtrain_disk *disk, struct roadtrain_info *info);

/*
 Makes a ring for up to `entries` requests (1 to 65536) that are not reaped yet.

 # Safety
 `disk` comes from roadtrain_open; `ring` points to a pointer.
 */
int roadtrain_ring_new(const struct roadtrain_disk *disk, uint32_t entries, struct roadtrain_ring **ring);

/*
 Waits until all requests of a ring have ended, drops their completions, and frees it.

 # Safety
 `ring` comes from roadtrain_ring_new, and has no user any more, on any thread.
 */
int roadtrain_ring_free(struct roadtrain_ring *ring);

/*
 Returns an event descriptor that is readable while there are completions, for poll and epoll. The ring owns it: the
 program must not read or close it.

 # Safety
 `ring` comes from roadtrain_ring_new.
 */
int roadtrain_ring_fd(const struct roadtrain_ring *ring);

/*
 Submits up to `count` requests in order. Returns the number of accepted ones, which is smaller when the ring is
 full. An invalid request is not accepted: if it is the first, returns -EINVAL, or -ERANGE if it is outside the disk.

 # Safety
 `ring` comes from roadtrain_ring_new; `requests` points to `count` requests, whose data is as the header requires.
 */
int roadtrain_submit(struct roadtrain_ring *ring,
                     const struct roadtrain_request *requests,
                     uint32_t count);

/*
 Takes up to `count` completions, and waits for the first of them for `timeout_ms`: 0 does not wait, -1 waits for
 ever. Returns their number: 0 after the timeout, or if no request is in flight.

 # Safety
 `ring` comes from roadtrain_ring_new; `completions` points to room for `count`.
 */
int roadtrain_reap(struct roadtrain_ring *ring,
                   struct roadtrain_completion *completions,
                   uint32_t count,
                   int timeout_ms);

#ifdef __cplusplus
} // extern "C"
#endif // __cplusplus

#endif /* ROADTRAIN_H */
