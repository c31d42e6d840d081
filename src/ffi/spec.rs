//! Commands as they are registered with the server: name, flags, keys, documentation and ACL
//! categories.

use std::ffi::{CStr, CString, c_int};
use std::ptr;

use redis_module::raw;

use super::callback::command;
use super::{Args, Ctx, api};

/// How an argument is shown by `COMMAND DOCS` and redis-cli's hints.
#[derive(Clone, Copy)]
pub(crate) struct Argument {
    pub(crate) name: &'static CStr,
    pub(crate) kind: raw::RedisModuleCommandArgType,
    /// The word that introduces the argument, or that it is.
    pub(crate) token: Option<&'static CStr>,
    pub(crate) flags: u32,
    /// Which of the command's keys it is, if it is one.
    pub(crate) key: c_int,
    /// What it is made of, or what its alternatives are.
    pub(crate) parts: &'static [Argument],
}

impl Argument {
    pub(crate) const KEY: Argument = Argument::key(c"key", 0);

    /// The key of this number among the command's keys.
    pub(crate) const fn key(name: &'static CStr, number: c_int) -> Argument {
        Argument {
            kind: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
            key: number,
            ..Argument::string(name)
        }
    }

    pub(crate) const fn string(name: &'static CStr) -> Argument {
        Argument {
            name,
            kind: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
            token: None,
            flags: raw::REDISMODULE_CMD_ARG_NONE,
            key: -1,
            parts: &[],
        }
    }

    pub(crate) const fn integer(name: &'static CStr) -> Argument {
        Argument {
            kind: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
            ..Argument::string(name)
        }
    }

    /// A word that stands for itself.
    pub(crate) const fn word(name: &'static CStr, word: &'static CStr) -> Argument {
        Argument {
            kind: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
            token: Some(word),
            ..Argument::string(name)
        }
    }

    /// Arguments that belong together.
    pub(crate) const fn group(name: &'static CStr, parts: &'static [Argument]) -> Argument {
        Argument {
            kind: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
            parts,
            ..Argument::string(name)
        }
    }

    pub(crate) const fn after(self, token: &'static CStr) -> Argument {
        Argument {
            token: Some(token),
            ..self
        }
    }

    pub(crate) const fn optional(self) -> Argument {
        Argument {
            flags: self.flags | raw::REDISMODULE_CMD_ARG_OPTIONAL,
            ..self
        }
    }

    pub(crate) const fn repeated(self) -> Argument {
        Argument {
            flags: self.flags | raw::REDISMODULE_CMD_ARG_MULTIPLE,
            ..self
        }
    }

    /// The arguments as the server wants them. Nested ones are kept alive by `nested`.
    fn to_raw(
        arguments: &[Argument],
        nested: &mut Vec<Vec<raw::RedisModuleCommandArg>>,
    ) -> Vec<raw::RedisModuleCommandArg> {
        let mut list: Vec<_> = Vec::with_capacity(arguments.len() + 1);
        for argument in arguments {
            let subargs = if argument.parts.is_empty() {
                ptr::null_mut()
            } else {
                let mut parts = Argument::to_raw(argument.parts, nested);
                let start = parts.as_mut_ptr();
                nested.push(parts);
                start
            };
            list.push(raw::RedisModuleCommandArg {
                name: argument.name.as_ptr(),
                type_: argument.kind,
                key_spec_index: argument.key,
                token: argument.token.map_or(ptr::null(), CStr::as_ptr),
                summary: ptr::null(),
                since: ptr::null(),
                flags: argument.flags as c_int,
                deprecated_since: ptr::null(),
                subargs,
                display_text: ptr::null(),
            });
        }
        // SAFETY: a null name ends the list; all fields are pointers or integers, for which zero is
        // a value.
        list.push(unsafe { std::mem::zeroed() });
        list
    }
}

/// What a command is registered with.
pub(crate) struct Spec {
    pub(crate) name: &'static CStr,
    pub(crate) summary: &'static CStr,
    pub(crate) complexity: &'static CStr,
    /// The version of the module that brought it.
    pub(crate) since: &'static CStr,
    /// The flags of the newest servers, which also name the ACL categories; `slow` is that of all
    /// that are not `fast`.
    pub(crate) flags: &'static CStr,
    /// Arguments with the name, as a minimum if negative.
    pub(crate) arity: c_int,
    /// What it does to each of its keys (`REDISMODULE_CMD_KEY_*`), which are its first arguments.
    pub(crate) keys: &'static [u32],
    pub(crate) arguments: &'static [Argument],
}

impl Spec {
    /// Whether a command of this spec may have `len` arguments, its name included.
    pub(crate) fn accepts(&self, len: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        if self.arity < 0 {
            len >= least
        } else {
            len == least
        }
    }

    /// Makes the command known to the server, with its documentation and ACL categories as far as
    /// the server has them.
    pub(crate) fn register<F: Fn(Ctx<'_>, Args<'_>) + Copy>(
        &self,
        ctx: Ctx<'_>,
        _run: F,
        category: Option<&str>,
    ) -> Result<(), &'static str> {
        const OK: c_int = raw::Status::Ok as c_int;
        let (ctx, name) = (ctx.as_ptr(), self.name.as_ptr());
        let flags = self.known_flags();
        // SAFETY: context and strings are valid, and the server copies them.
        unsafe {
            let flags = flags.as_ptr();
            let last_key = self.keys.len() as c_int;
            let created = api!(RedisModule_CreateCommand)(
                ctx,
                name,
                Some(command::<F>),
                flags,
                1,
                last_key,
                1,
            );
            if created != OK {
                return Err("cannot create the command; does another module have it?");
            }
        }
        // SAFETY: before 7.0 the function is absent, since then it finds the command just created.
        let command = unsafe {
            raw::RedisModule_GetCommand
                .map_or(ptr::null_mut(), |get_command| get_command(ctx, name))
        };
        if command.is_null() {
            return Ok(());
        }
        self.document(command)?;
        // SAFETY: the function is absent before 7.2; command and string are valid.
        unsafe {
            if let Some(set_categories) = raw::RedisModule_SetCommandACLCategories {
                let flags = self.flags.to_str().unwrap_or_default();
                let own = flags.replace("readonly", "read");
                // The server adds none by itself once it is told some.
                let is_fast = flags.split(' ').any(|flag| flag == "fast");
                let slow = if is_fast { None } else { Some("slow") };
                let categories = [Some(own.as_str()), slow, category];
                let categories: Vec<&str> = categories.into_iter().flatten().collect();
                let categories = CString::new(categories.join(" ")).unwrap_or_default();
                if set_categories(command, categories.as_ptr()) != OK {
                    return Err("cannot set the command's ACL categories");
                }
            }
        }
        Ok(())
    }

    /// The flags that this server knows: it refuses a command with any other.
    fn known_flags(&self) -> CString {
        // SAFETY: the statics are set once before the module's first callback; the function came
        // with `blocking`, in 7.0.
        let knows_blocking = unsafe { raw::RedisModule_GetCommand }.is_some();
        let flags = self.flags.to_str().unwrap_or_default().split(' ');
        let known: Vec<&str> = flags
            .filter(|&flag| flag != "blocking" || knows_blocking)
            .collect();
        CString::new(known.join(" ")).unwrap_or_default()
    }

    fn document(&self, command: *mut raw::RedisModuleCommand) -> Result<(), &'static str> {
        // SAFETY: read-only data that the server's header defines; the function is absent before
        // 7.0.
        let (Some(set_info), version) = (unsafe { raw::RedisModule_SetCommandInfo }, &VERSION)
        else {
            return Ok(());
        };
        // SAFETY: zero ends the list of key specs: all fields are pointers, integers, or unions of
        // them.
        let end: raw::RedisModuleCommandKeySpec = unsafe { std::mem::zeroed() };
        let keys = (1..).zip(self.keys);
        let mut key_specs: Vec<_> = keys
            .map(|(pos, &flags)| raw::RedisModuleCommandKeySpec {
                flags: u64::from(flags),
                begin_search_type:
                    raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX,
                bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
                    index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos },
                },
                find_keys_type: raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE,
                fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
                    range: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
                        lastkey: 0,
                        keystep: 1,
                        limit: 0,
                    },
                },
                ..end
            })
            .collect();
        key_specs.push(end);
        let mut nested = Vec::new();
        let mut arguments = Argument::to_raw(self.arguments, &mut nested);
        let info = raw::RedisModuleCommandInfo {
            version,
            summary: self.summary.as_ptr(),
            complexity: self.complexity.as_ptr(),
            since: self.since.as_ptr(),
            history: ptr::null_mut(),
            tips: ptr::null(),
            arity: self.arity,
            key_specs: key_specs.as_mut_ptr(),
            args: arguments.as_mut_ptr(),
        };
        // SAFETY: all of `info` outlives the call, and the server copies it.
        let status = unsafe { set_info(command, &raw const info) };
        if status == raw::Status::Ok as c_int {
            Ok(())
        } else {
            Err("the server refuses the command's documentation")
        }
    }
}

/// The layout of the structures above, by which the server knows what this module was built with.
static VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};
