# How many names an open file has, without asking when it was changed.

cdef extern from *:
    """
    #include <fcntl.h>
    #include <sys/stat.h>

    /* Returns -1, with errno, if that cannot be told. A file system that was asked for the time of a change notes the next one
       to the nanosecond, in its journal, which takes longer than a small write: so only the links are asked for. */
    static long long penstock_links(int fd) {
        struct stat status;
    #ifdef STATX_NLINK
        struct statx links;
        if (statx(fd, "", AT_EMPTY_PATH, STATX_NLINK, &links) == 0 && links.stx_mask & STATX_NLINK) return links.stx_nlink;
    #endif
        if (fstat(fd, &status) != 0) return -1;
        return (long long)status.st_nlink;
    }
    """
    long long penstock_links(int fd) nogil
