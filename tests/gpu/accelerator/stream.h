/* The streams of the fake accelerator: queues, each with a thread of its own. ACCELERATOR_DELAY_US makes every entry
   late by that many microseconds, so that code that doesn't wait for a stream sees old values. With ACCELERATOR_SEED,
   by random numbers of microseconds, which that many are on average. */
#ifndef ACCELERATOR_STREAM_H
#define ACCELERATOR_STREAM_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct SP_Stream_st accelerator_stream;
typedef struct SP_Event_st accelerator_event;
typedef void (*accelerator_work)(void *argument);

accelerator_stream *accelerator_stream_new(void);
void accelerator_stream_delete(accelerator_stream *stream);
/* Has work done after all that was put into the stream before. */
void accelerator_stream_put(accelerator_stream *stream, accelerator_work work, void *argument);
void accelerator_stream_wait(accelerator_stream *stream);
/* Has what is put into a stream from now on wait for all that the others have to do now. */
void accelerator_stream_after_all(accelerator_stream *stream);
/* Waits for all streams there are. */
void accelerator_streams_wait(void);

accelerator_event *accelerator_event_new(void);
/* The streams that still have to reach or to await the event keep it. */
void accelerator_event_delete(accelerator_event *event);
void accelerator_event_record(accelerator_event *event, accelerator_stream *stream);
void accelerator_event_await(accelerator_event *event, accelerator_stream *stream);
int accelerator_event_is_pending(accelerator_event *event);
void accelerator_event_wait(accelerator_event *event);

#ifdef __cplusplus
}
#endif
#endif
