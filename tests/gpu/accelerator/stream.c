#define _GNU_SOURCE
#include "stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* As many entries as the queue of a GPU's driver has, more or less. Who has more to put in waits. */
#define MOST_ENTRIES 1024

struct entry {
    accelerator_work work;
    void *argument;
    struct entry *next;
};

struct SP_Stream_st {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct entry *first, **last;
    int ends;
    /* How many entries were ever put in, and done. */
    long put, done;
    struct SP_Stream_st *next;
};

/* All streams, for who waits for all of them. */
static struct SP_Stream_st *streams;
static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;

struct SP_Event_st {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Records that no stream has reached yet. */
    int pending;
    /* The owner, and the entries of streams that name the event. */
    int references;
};

static int setting(const char *name) {
    const char *value = getenv(name);
    return value == NULL ? 0 : atoi(value);
}

static void *serve(void *argument) {
    accelerator_stream *stream = argument;
    /* With a seed, each entry has a random delay, which is the given one on average. */
    int delay = setting("ACCELERATOR_DELAY_US");
    unsigned int random = (unsigned int)setting("ACCELERATOR_SEED");
    int is_random = random != 0;
    pthread_mutex_lock(&stream->mutex);
    for (;;) {
        while (stream->first == NULL && !stream->ends) pthread_cond_wait(&stream->changed, &stream->mutex);
        if (stream->first == NULL) break;
        struct entry *entry = stream->first;
        stream->first = entry->next;
        if (stream->first == NULL) stream->last = &stream->first;
        pthread_mutex_unlock(&stream->mutex);
        if (delay > 0) usleep((useconds_t)(is_random ? rand_r(&random) % (2 * delay) : delay));
        entry->work(entry->argument);
        free(entry);
        pthread_mutex_lock(&stream->mutex);
        stream->done++;
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->mutex);
    return NULL;
}

accelerator_stream *accelerator_stream_new(void) {
    accelerator_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) abort();
    pthread_mutex_init(&stream->mutex, NULL);
    pthread_cond_init(&stream->changed, NULL);
    stream->last = &stream->first;
    if (pthread_create(&stream->thread, NULL, serve, stream) != 0) abort();
    pthread_mutex_lock(&listing);
    stream->next = streams;
    streams = stream;
    pthread_mutex_unlock(&listing);
    return stream;
}

void accelerator_stream_delete(accelerator_stream *stream) {
    pthread_mutex_lock(&listing);
    struct SP_Stream_st **place = &streams;
    while (*place != stream) place = &(*place)->next;
    *place = stream->next;
    pthread_mutex_unlock(&listing);
    pthread_mutex_lock(&stream->mutex);
    stream->ends = 1;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->mutex);
    pthread_join(stream->thread, NULL);
    free(stream);
}

void accelerator_stream_put(accelerator_stream *stream, accelerator_work work, void *argument) {
    struct entry *entry = malloc(sizeof *entry);
    if (entry == NULL) abort();
    *entry = (struct entry){work, argument, NULL};
    pthread_mutex_lock(&stream->mutex);
    if (!pthread_equal(pthread_self(), stream->thread))
        while (stream->put - stream->done >= MOST_ENTRIES) pthread_cond_wait(&stream->changed, &stream->mutex);
    *stream->last = entry;
    stream->last = &entry->next;
    stream->put++;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->mutex);
}

void accelerator_stream_wait(accelerator_stream *stream) {
    pthread_mutex_lock(&stream->mutex);
    /* For what is in it now, not for what others put in meanwhile. */
    long last = stream->put;
    while (stream->done < last) pthread_cond_wait(&stream->changed, &stream->mutex);
    pthread_mutex_unlock(&stream->mutex);
}

void accelerator_stream_after_all(accelerator_stream *stream) {
    accelerator_event *event = accelerator_event_new();
    pthread_mutex_lock(&listing);
    for (accelerator_stream *other = streams; other != NULL; other = other->next)
        if (other != stream) accelerator_event_record(event, other);
    pthread_mutex_unlock(&listing);
    accelerator_event_await(event, stream);
    accelerator_event_delete(event);
}

void accelerator_streams_wait(void) {
    pthread_mutex_lock(&listing);
    for (accelerator_stream *stream = streams; stream != NULL; stream = stream->next) accelerator_stream_wait(stream);
    pthread_mutex_unlock(&listing);
}

accelerator_event *accelerator_event_new(void) {
    accelerator_event *event = calloc(1, sizeof *event);
    if (event == NULL) abort();
    pthread_mutex_init(&event->mutex, NULL);
    pthread_cond_init(&event->changed, NULL);
    event->references = 1;
    return event;
}

void accelerator_event_delete(accelerator_event *event) {
    pthread_mutex_lock(&event->mutex);
    int left = --event->references;
    pthread_mutex_unlock(&event->mutex);
    if (left == 0) free(event);
}

static void reach(void *argument) {
    accelerator_event *event = argument;
    pthread_mutex_lock(&event->mutex);
    event->pending--;
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->mutex);
    accelerator_event_delete(event);
}

static void await_and_forget(void *argument) {
    accelerator_event_wait(argument);
    accelerator_event_delete(argument);
}

void accelerator_event_record(accelerator_event *event, accelerator_stream *stream) {
    pthread_mutex_lock(&event->mutex);
    event->pending++;
    event->references++;
    pthread_mutex_unlock(&event->mutex);
    accelerator_stream_put(stream, reach, event);
}

void accelerator_event_await(accelerator_event *event, accelerator_stream *stream) {
    pthread_mutex_lock(&event->mutex);
    event->references++;
    pthread_mutex_unlock(&event->mutex);
    accelerator_stream_put(stream, await_and_forget, event);
}

int accelerator_event_is_pending(accelerator_event *event) {
    pthread_mutex_lock(&event->mutex);
    int is_pending = event->pending > 0;
    pthread_mutex_unlock(&event->mutex);
    return is_pending;
}

void accelerator_event_wait(accelerator_event *event) {
    pthread_mutex_lock(&event->mutex);
    while (event->pending > 0) pthread_cond_wait(&event->changed, &event->mutex);
    pthread_mutex_unlock(&event->mutex);
}
