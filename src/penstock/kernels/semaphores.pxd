# Semaphores of the system, for threads that wait for each other without the interpreter.

from posix.time cimport timespec


cdef extern from "<semaphore.h>" nogil:
    ctypedef struct sem_t:
        pass
    int sem_init(sem_t *semaphore, int is_shared, unsigned int value)
    int sem_post(sem_t *semaphore)
    int sem_wait(sem_t *semaphore)
    int sem_timedwait(sem_t *semaphore, const timespec *until)
