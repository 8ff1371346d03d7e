/*
 * Counts the calls by which a program moves bytes through TCP connections, and the bytes, as the
 * lab's kernel does for a processor that takes time (patch 0011). For LD_PRELOAD on the host: the
 * three counters stand in the file $COUNT_CALLS_IN/PID, in the order of struct counted.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static struct counted {
	uint64_t calls, read_bytes, written_bytes;
} nowhere, *counted = &nowhere;

/* The C library's own function; the first call may come before begin(), from another constructor. */
#define PLAIN(type, name)                              \
	static type plain;                             \
	if (!plain)                                    \
		plain = (type)dlsym(RTLD_NEXT, name)

typedef ssize_t (*read_fn)(int, void *, size_t);
typedef ssize_t (*recv_fn)(int, void *, size_t, int);
typedef ssize_t (*write_fn)(int, const void *, size_t);
typedef ssize_t (*send_fn)(int, const void *, size_t, int);

__attribute__((constructor)) static void begin(void)
{
	const char *folder = getenv("COUNT_CALLS_IN");
	char path[4096];
	void *mapped;
	int fd;

	snprintf(path, sizeof(path), "%s/%d", folder ? folder : "", getpid());
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (!ftruncate(fd, sizeof(*counted))) {
		mapped = mmap(NULL, sizeof(*counted), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (mapped != MAP_FAILED)
			counted = mapped;
	}
	close(fd);
}

static ssize_t count(int fd, ssize_t moved, uint64_t *bytes)
{
	int protocol = 0, before = errno;
	socklen_t size = sizeof(protocol);

	if (moved > 0 && !getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) &&
	    protocol == IPPROTO_TCP) {
		counted->calls++;
		*bytes += moved;
	}
	errno = before;
	return moved;
}

ssize_t read(int fd, void *buffer, size_t size)
{
	PLAIN(read_fn, "read");
	return count(fd, plain(fd, buffer, size), &counted->read_bytes);
}

ssize_t recv(int fd, void *buffer, size_t size, int flags)
{
	PLAIN(recv_fn, "recv");
	return count(fd, plain(fd, buffer, size, flags), &counted->read_bytes);
}

ssize_t write(int fd, const void *buffer, size_t size)
{
	PLAIN(write_fn, "write");
	return count(fd, plain(fd, buffer, size), &counted->written_bytes);
}

ssize_t send(int fd, const void *buffer, size_t size, int flags)
{
	PLAIN(send_fn, "send");
	return count(fd, plain(fd, buffer, size, flags), &counted->written_bytes);
}
