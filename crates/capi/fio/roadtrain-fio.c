/*
 * An engine of fio on libroadtrain: fio's threads are the host, with no block device in between.
 *   fio --ioengine=external:target/fio/roadtrain-fio.so --thread --addresses=192.0.2.7:4420 \
 *       --nqn=nqn.2025-01.io.example:disk --name=read --rw=randread --bs=4k --iodepth=128
 * scripts/fio-engine.sh builds it with the headers of the fio that is installed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fio.h"
#include "optgroup.h"

#include "roadtrain.h"

struct engine_options {
	void *unused; /* fio takes the offset 0 for none */
	char *addresses;
	char *nqn;
	char *hostnqn;
	char *cores;
	unsigned int nsid;
	unsigned int lanes;
	unsigned int hdgst;
	unsigned int ddgst;
};

#define OPTION(name_, type_, help_)                                                               \
	{                                                                                         \
		.name = #name_, .lname = #name_, .type = type_, .help = help_,                    \
		.off1 = offsetof(struct engine_options, name_), .category = FIO_OPT_C_ENGINE,     \
		.group = FIO_OPT_G_INVALID,                                                       \
	}

static struct fio_option options[] = {
	OPTION(addresses, FIO_OPT_STR_STORE, "Where the target is, ADDRESS:PORT; several with commas"),
	OPTION(nqn, FIO_OPT_STR_STORE, "The subsystem's NQN"),
	OPTION(hostnqn, FIO_OPT_STR_STORE, "This host's NQN"),
	OPTION(cores, FIO_OPT_STR_STORE, "Cores of the reactors, such as 0,2"),
	OPTION(nsid, FIO_OPT_INT, "Namespace; 0 is the first"),
	OPTION(lanes, FIO_OPT_INT, "I/O queues"),
	OPTION(hdgst, FIO_OPT_STR_SET, "Header digests"),
	OPTION(ddgst, FIO_OPT_STR_SET, "Data digests"),
	{.name = NULL},
};

/* A job's connection. */
struct job {
	roadtrain_disk *disk;
	roadtrain_ring *ring;
	unsigned int depth;
	/* Not submitted yet. */
	roadtrain_request *requests;
	unsigned int queued;
	/* What has ended, and was not taken by event(). */
	roadtrain_completion *completions;
	/* Never taken by the library, with the reason. */
	roadtrain_completion *refused;
	unsigned int refused_count;
};

static int connect_disk(struct thread_data *td, roadtrain_disk **disk)
{
	struct engine_options *o = td->eo;
	/* One more than fit a queue: NVMe's queues keep one entry free. */
	roadtrain_options to = {
		.size = sizeof(to), .addresses = o->addresses, .subsystem_nqn = o->nqn, .host_nqn = o->hostnqn,
		.cores = o->cores, .nsid = o->nsid, .lanes = o->lanes, .queue_entries = td->o.iodepth + 1,
		.flags = (o->hdgst ? ROADTRAIN_HDGST : 0) | (o->ddgst ? ROADTRAIN_DDGST : 0),
	};
	int rc;

	if (!o->addresses || !o->nqn) {
		log_err("roadtrain: give --addresses and --nqn\n");
		return 1;
	}
	if (to.queue_entries < 32)
		to.queue_entries = 32;
	rc = roadtrain_open(&to, disk);
	if (rc) {
		log_err("roadtrain: %s\n", roadtrain_error());
		td_verror(td, -rc, "roadtrain_open");
		return 1;
	}
	return 0;
}

/* Before jobs are forked: the connection that says the size does not outlive this. */
static int setup(struct thread_data *td)
{
	roadtrain_info info = {.size = sizeof(info)};
	roadtrain_disk *disk;
	int rc;

	if (!td->files_index) {
		add_file(td, td->o.filename ? td->o.filename : "roadtrain", 0, 0);
		td->o.nr_files = td->o.nr_files ? td->o.nr_files : 1;
		td->o.open_files++;
	}
	if (connect_disk(td, &disk))
		return 1;
	rc = roadtrain_disk_info(disk, &info);
	roadtrain_close(disk);
	if (rc) {
		td_verror(td, -rc, "roadtrain_disk_info");
		return 1;
	}
	td->files[0]->real_file_size = info.blocks * info.block_bytes;
	return 0;
}

static void cleanup(struct thread_data *td)
{
	struct job *job = td->io_ops_data;

	if (!job)
		return;
	if (job->ring)
		roadtrain_ring_free(job->ring);
	if (job->disk)
		roadtrain_close(job->disk);
	free(job->requests);
	free(job->completions);
	free(job->refused);
	free(job);
	td->io_ops_data = NULL;
}

static int init(struct thread_data *td)
{
	struct job *job = calloc(1, sizeof(*job));
	int rc;

	if (!job)
		return 1;
	td->io_ops_data = job;
	job->depth = td->o.iodepth;
	job->requests = calloc(job->depth, sizeof(*job->requests));
	job->completions = calloc(job->depth, sizeof(*job->completions));
	job->refused = calloc(job->depth, sizeof(*job->refused));
	if (!job->requests || !job->completions || !job->refused)
		return 1;
	if (connect_disk(td, &job->disk))
		return 1;
	rc = roadtrain_ring_new(job->disk, job->depth, &job->ring);
	if (rc) {
		log_err("roadtrain: %s\n", roadtrain_error());
		td_verror(td, -rc, "roadtrain_ring_new");
		return 1;
	}
	return 0;
}

static enum fio_q_status queue(struct thread_data *td, struct io_u *io_u)
{
	struct job *job = td->io_ops_data;
	roadtrain_request request = {.token = (uintptr_t)io_u};

	fio_ro_check(td, io_u);
	if (job->queued == job->depth)
		return FIO_Q_BUSY;
	switch (io_u->ddir) {
	case DDIR_READ:
		request.op = ROADTRAIN_READ;
		break;
	case DDIR_WRITE:
		request.op = ROADTRAIN_WRITE;
		break;
	case DDIR_TRIM:
		request.op = ROADTRAIN_DISCARD;
		break;
	default:
		request.op = ROADTRAIN_FLUSH;
		break;
	}
	if (request.op != ROADTRAIN_FLUSH) {
		request.offset = io_u->offset;
		request.length = io_u->xfer_buflen;
	}
	if (request.op == ROADTRAIN_READ || request.op == ROADTRAIN_WRITE)
		request.data = io_u->xfer_buf;
	job->requests[job->queued++] = request;
	return FIO_Q_QUEUED;
}

/* All that is queued goes at once. What the library refuses ends with its error. */
static int commit(struct thread_data *td)
{
	struct job *job = td->io_ops_data;
	unsigned int at = 0;

	while (at < job->queued) {
		int taken = roadtrain_submit(job->ring, job->requests + at, job->queued - at);

		if (taken > 0) {
			at += taken;
		} else if (taken == 0) {
			sched_yield(); /* the library's queue is full: its thread takes from it */
		} else {
			job->refused[job->refused_count++] =
				(roadtrain_completion){.token = job->requests[at].token, .result = taken};
			at++;
		}
	}
	job->queued = 0;
	return 0;
}

static int getevents(struct thread_data *td, unsigned int min, unsigned int max, const struct timespec *t)
{
	struct job *job = td->io_ops_data;
	int timeout = t ? t->tv_sec * 1000 + (t->tv_nsec + 999999) / 1000000 : -1;
	unsigned int count = 0;

	while (job->refused_count && count < max)
		job->completions[count++] = job->refused[--job->refused_count];
	do {
		int wait = count < min ? timeout : 0;
		int more = roadtrain_reap(job->ring, job->completions + count, max - count, wait);

		if (more == -EINTR)
			continue;
		if (more < 0)
			return more;
		if (more == 0 && wait >= 0)
			break;
		count += more;
	} while (count < min);
	return count;
}

static struct io_u *event(struct thread_data *td, int number)
{
	struct job *job = td->io_ops_data;
	roadtrain_completion *ended = &job->completions[number];
	struct io_u *io_u = (struct io_u *)(uintptr_t)ended->token;

	io_u->error = -ended->result;
	io_u->resid = ended->result ? io_u->xfer_buflen : 0;
	return io_u;
}

/* There is no file. */
static int file_nothing(struct thread_data *td, struct fio_file *f)
{
	return 0;
}

struct ioengine_ops ioengine = {
	.name = "roadtrain",
	.version = FIO_IOOPS_VERSION,
	.flags = FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL | FIO_RAWIO,
	.setup = setup,
	.init = init,
	.queue = queue,
	.commit = commit,
	.getevents = getevents,
	.event = event,
	.cleanup = cleanup,
	.open_file = file_nothing,
	.close_file = file_nothing,
	.invalidate = file_nothing,
	.options = options,
	.option_struct_size = sizeof(struct engine_options),
};
