#define _GNU_SOURCE
#include "memory.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALIGNMENT 256

static char *without_access, *with_access;
static uint64_t all_bytes;
static uint64_t taken[ACCELERATOR_MOST_DEVICES];
static pthread_mutex_t taking = PTHREAD_MUTEX_INITIALIZER;

int accelerator_memory_open(int devices) {
    all_bytes = (uint64_t)devices * ACCELERATOR_BYTES;
    int file = memfd_create("accelerator", 0);
    if (file < 0 || ftruncate(file, (off_t)all_bytes) != 0) return -1;
    without_access = mmap(NULL, all_bytes, PROT_NONE, MAP_SHARED, file, 0);
    with_access = mmap(NULL, all_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return without_access == MAP_FAILED || with_access == MAP_FAILED ? -1 : 0;
}

void *accelerator_memory_take(int device, uint64_t bytes) {
    void *address = NULL;
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    pthread_mutex_lock(&taking);
    if (taken[device] + bytes <= ACCELERATOR_BYTES) {
        address = without_access + (uint64_t)device * ACCELERATOR_BYTES + taken[device];
        taken[device] += bytes;
    }
    pthread_mutex_unlock(&taking);
    return address;
}

void *accelerator_memory_at(const void *address) {
    const char *place = address;
    if (place >= without_access && place < without_access + all_bytes) return with_access + (place - without_access);
    return (void *)address;
}
