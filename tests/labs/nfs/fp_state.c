/*
 * Lets User-mode Linux 6.1 run on processors with AMX, as a library that is loaded before it.
 *
 * UML sets the floating point state of a guest's process with as many bytes as it knows. Host kernels since 6.x take only
 * the whole state, which AMX makes 11008 bytes, and return EFAULT otherwise. So the rest is read first and set again.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define NT_X86_XSTATE 0x202

long ptrace(enum __ptrace_request request, ...)
{
	va_list arguments;
	va_start(arguments, request);
	long pid = va_arg(arguments, long);
	long address = va_arg(arguments, long);
	long data = va_arg(arguments, long);
	va_end(arguments);

	if (request == PTRACE_SETREGSET && address == NT_X86_XSTATE) {
		static char state[65536];
		struct iovec whole = { state, sizeof state };
		struct iovec *known = (struct iovec *)data;
		if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, address, &whole) == 0 && known->iov_len < whole.iov_len) {
			memcpy(state, known->iov_base, known->iov_len);
			return syscall(SYS_ptrace, request, pid, address, &whole);
		}
	}
	/* The system call stores what the function returns. */
	if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
		long word;
		long result = syscall(SYS_ptrace, request, pid, address, &word);
		return result < 0 ? result : word;
	}
	return syscall(SYS_ptrace, request, pid, address, data);
}
