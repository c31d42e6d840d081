// A module that removes the pool `pool` as soon as any key's time to live is over.
//
// It asks for the few functions that it needs by their names, so that no header of the server's is needed.
#include <string.h>

typedef int (*Listener)(void *ctx, int class, const char *event, void *key);

static void *(*call)(void *ctx, const char *command, const char *format, ...);
static void (*free_reply)(void *reply);

static int on_event(void *ctx, int class, const char *event, void *key) {
    (void)class;
    (void)key;
    if (strcmp(event, "expired") == 0) {
        void *reply = call(ctx, "DEL", "c!", "pool");
        if (reply != NULL) {
            free_reply(reply);
        }
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
    // Events of keys whose time to live is over.
    return subscribe(ctx, 1 << 8, on_event);
}
