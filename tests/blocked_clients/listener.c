// A module that hears of keyspace events. It releases the seat of `a` as soon as somebody has
// joined the queue of its pool. As soon as somebody is taken from a set it beats for `g` of the
// pool `p`, and adds the members of the set `late` to that pool's legacy key.
//
// It asks for the few functions that it needs by their names, so that no header of the server's is needed.
#include <stddef.h>
#include <string.h>

static const char *const LEGACY = "license:p:active_sessions";

typedef int (*Listener)(void *ctx, int class, const char *event, void *key);

static void *(*call)(void *ctx, const char *command, const char *format, ...);
static void (*free_reply)(void *reply);

static int on_event(void *ctx, int class, const char *event, void *key) {
    (void)class;
    void *reply = NULL;
    if (strcmp(event, "seat.queued") == 0) {
        reply = call(ctx, "SEAT.RELEASE", "sc!", key, "a");
    } else if (strcmp(event, "srem") == 0) {
        reply = call(ctx, "SEAT.HEARTBEAT", "cc!", "p", "g");
        if (reply != NULL) {
            free_reply(reply);
        }
        reply = call(ctx, "SUNIONSTORE", "ccc!", LEGACY, LEGACY, "late");
    }
    if (reply != NULL) {
        free_reply(reply);
    }
    return 0;
}

int RedisModule_OnLoad(void *ctx, void **arguments, int count) {
    (void)arguments;
    (void)count;
    // A context begins with the function by which the others are found.
    int (*get)(const char *name, void *function) = *(int (**)(const char *, void *))ctx;
    void (*set_attributes)(void *ctx, const char *name, int version, int api);
    int (*subscribe)(void *ctx, int classes, Listener listener);
    if (get("RedisModule_SetModuleAttribs", &set_attributes) || get("RedisModule_Call", &call) ||
        get("RedisModule_FreeCallReply", &free_reply) || get("RedisModule_SubscribeToKeyspaceEvents", &subscribe)) {
        return 1;
    }
    set_attributes(ctx, "listener", 1, 1);
    // Events of sets and of modules.
    return subscribe(ctx, 1 << 5 | 1 << 13, on_event);
}
