//! What rules may call besides the language itself: the extensions that Kubernetes takes over, and functions of its own.
//!
//! Functions only look; the values that they make are in `things`.

use std::sync::{Arc, LazyLock};

use cel::{
    Context, Env, ExecutionError, ParseErrors, Program, Value as Cel,
    common::{
        types::{DYN_TYPE, INT_TYPE, LIST_TYPE, STRING_TYPE, Type},
        value::CowVal,
    },
    extensions,
    extractors::This,
};
use regex::Regex;

use super::things::{self, Thing};

type Answer = Result<Cel, ExecutionError>;

/// The answer of a function that is chosen by the types of its arguments.
type Found<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    extend(&mut env).expect("no name of this file is declared twice, which the first test to touch a rule shows");
    Arc::new(env)
});

pub(super) fn compile(source: &str) -> Result<Program, ParseErrors> {
    ENV.compile(source)
}

/// A context in which all functions are known and no variable is.
pub(super) fn context() -> Context<'static, 'static> {
    let mut context = Context::with_env(Arc::clone(&ENV));
    declare(&mut context)
        .expect("no name of this file is declared by the language, which the first test to touch a rule shows");
    context
}

fn extend(env: &mut Env) -> Result<(), cel::DeclarationError> {
    env.add_extension(extensions::strings)?;
    env.add_extension(extensions::lists)?;
    env.add_member_overload("indexOf", "list_index_of", LIST_TYPE, vec![DYN_TYPE], index_of)?;
    env.add_member_overload(
        "lastIndexOf",
        "list_last_index_of",
        LIST_TYPE,
        vec![DYN_TYPE],
        last_index_of,
    )?;
    env.add_member_overload("findAll", "find_all", STRING_TYPE, vec![STRING_TYPE], find_all)?;
    env.add_member_overload(
        "findAll",
        "find_all_n",
        STRING_TYPE,
        vec![STRING_TYPE, INT_TYPE],
        find_all,
    )?;
    env.add_overload(
        "sets.contains",
        "sets_contains",
        vec![LIST_TYPE, LIST_TYPE],
        sets_contains,
    )?;
    env.add_overload(
        "sets.equivalent",
        "sets_equivalent",
        vec![LIST_TYPE, LIST_TYPE],
        sets_equivalent,
    )?;
    env.add_overload(
        "sets.intersects",
        "sets_intersects",
        vec![LIST_TYPE, LIST_TYPE],
        sets_intersects,
    )?;
    for (id, name) in [("string_ip", "net.IP"), ("string_cidr", "net.CIDR")] {
        env.add_overload("string", id, vec![Type::new_opaque_type(name)], as_text)?;
    }
    env.add_overload("format.dns1123Label", "dns1123_label", vec![], |_| {
        format("k8s-short-name")
    })?;
    env.add_overload("format.dns1123Subdomain", "dns1123_subdomain", vec![], |_| {
        format("k8s-long-name")
    })?;
    env.add_overload("format.uri", "format_uri", vec![], |_| format("uri"))?;
    env.add_overload("format.uuid", "format_uuid", vec![], |_| format("uuid"))?;
    env.add_overload("format.byte", "format_byte", vec![], |_| format("byte"))?;
    env.add_overload("format.date", "format_date", vec![], |_| format("date"))?;
    env.add_overload("format.datetime", "format_datetime", vec![], |_| format("datetime"))?;
    Ok(())
}

fn declare(context: &mut Context<'_, '_>) -> Result<(), cel::DeclarationError> {
    context.add_function("isSorted", is_sorted)?;
    context.add_function("sum", sum)?;
    context.add_function("min", |This(list): This<Cel>| {
        extreme("min", &list, |one, best| one < best)
    })?;
    context.add_function("max", |This(list): This<Cel>| {
        extreme("max", &list, |one, best| one > best)
    })?;
    context.add_function("find", find)?;
    for reader in &things::READERS {
        context.add_function(reader.is, |text: Arc<String>| Cel::Bool((reader.read)(&text).is_some()))?;
        context.add_function(reader.name, |This(value): This<Cel>| read(reader, &value))?;
    }
    for name in things::QUESTIONS {
        context.add_function(name, |This(this): This<Cel>| {
            things::answer(name, Thing::of(&this, name)?)
        })?;
    }
    for name in things::COMPARISONS {
        context.add_function(name, |This(this): This<Cel>, other: Cel| {
            things::compare(name, Thing::of(&this, name)?, &other)
        })?;
    }
    Ok(())
}

/// What a reader makes of a text. As a method the same name asks a thing for its part: `cidr(…).ip()`.
fn read(reader: &things::Reader, value: &Cel) -> Answer {
    let Cel::String(text) = value else {
        return things::answer(reader.name, Thing::of(value, reader.name)?);
    };
    let unread = || ExecutionError::function_error(reader.name, format!("{text:?} is no {}", reader.name));
    (reader.read)(text).map(Thing::into_cel).ok_or_else(unread)
}

fn items(list: &Cel, function: &str) -> Result<Arc<Vec<Cel>>, ExecutionError> {
    match list {
        Cel::List(items) => Ok(Arc::clone(items)),
        _ => Err(ExecutionError::function_error(function, "no such overload")),
    }
}

fn is_sorted(This(list): This<Cel>) -> Answer {
    Ok(Cel::Bool(items(&list, "isSorted")?.is_sorted()))
}

/// The sum of a list. That of an empty one is 0.
fn sum(This(list): This<Cel>) -> Answer {
    let mut total = None;
    for item in items(&list, "sum")?.iter() {
        total = Some(match (total, item) {
            (None, item) => item.clone(),
            (Some(Cel::Int(total)), Cel::Int(item)) => {
                let overflow = || ExecutionError::function_error("sum", "integer overflow");
                Cel::Int(total.checked_add(*item).ok_or_else(overflow)?)
            }
            (Some(Cel::Float(total)), Cel::Float(item)) => Cel::Float(total + item),
            (Some(Cel::Duration(total)), Cel::Duration(item)) => Cel::Duration(total + *item),
            _ => return Err(ExecutionError::function_error("sum", "no such overload")),
        });
    }
    Ok(total.unwrap_or(Cel::Int(0)))
}

fn extreme(name: &str, list: &Cel, is_better: impl Fn(&Cel, &Cel) -> bool) -> Answer {
    let best = items(list, name)?
        .iter()
        .cloned()
        .reduce(|best, one| if is_better(&one, &best) { one } else { best });
    best.ok_or_else(|| ExecutionError::function_error(name, format!("{name} called on empty list")))
}

fn find(This(text): This<Arc<String>>, pattern: Arc<String>) -> Answer {
    let found = regex("find", &pattern)?
        .find(&text)
        .map(|found| found.as_str().to_owned());
    Ok(Cel::String(Arc::new(found.unwrap_or_default())))
}

fn find_all<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Found<'b, 'v> {
    let args: Vec<Cel> = args
        .iter()
        .map(|arg| Cel::try_from(arg.as_ref()))
        .collect::<Result<_, _>>()?;
    let (text, pattern, most) = match args.as_slice() {
        [Cel::String(text), Cel::String(pattern)] => (text, pattern, usize::MAX),
        // A negative number means all.
        [Cel::String(text), Cel::String(pattern), Cel::Int(most)] => {
            (text, pattern, usize::try_from(*most).unwrap_or(usize::MAX))
        }
        _ => return Err(ExecutionError::function_error("findAll", "no such overload")),
    };
    let regex = regex("findAll", pattern)?;
    let found = regex
        .find_iter(text)
        .take(most)
        .map(|found| Cel::String(Arc::new(found.as_str().to_owned())));
    give(Cel::List(Arc::new(found.collect())))
}

fn regex(function: &str, pattern: &str) -> Result<Regex, ExecutionError> {
    Regex::new(pattern).map_err(|error| ExecutionError::function_error(function, error))
}

fn index_of<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Found<'b, 'v> {
    position("indexOf", &args, |items, sought| {
        items.iter().position(|item| item == sought)
    })
}

fn last_index_of<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Found<'b, 'v> {
    position("lastIndexOf", &args, |items, sought| {
        items.iter().rposition(|item| item == sought)
    })
}

fn position<'b, 'v>(
    name: &str,
    args: &[CowVal<'_, '_>],
    seek: impl Fn(&[Cel], &Cel) -> Option<usize>,
) -> Found<'b, 'v> {
    let (list, sought) = two(args)?;
    let index = seek(&items(&list, name)?, &sought).and_then(|index| i64::try_from(index).ok());
    give(Cel::Int(index.unwrap_or(-1)))
}

fn sets_contains<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Found<'b, 'v> {
    sets("sets.contains", &args, holds_all)
}

fn sets_equivalent<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Found<'b, 'v> {
    sets("sets.equivalent", &args, |one, other| {
        holds_all(one, other) && holds_all(other, one)
    })
}

fn sets_intersects<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Found<'b, 'v> {
    sets("sets.intersects", &args, |one, other| {
        other.iter().any(|item| one.contains(item))
    })
}

fn holds_all(one: &[Cel], other: &[Cel]) -> bool {
    other.iter().all(|item| one.contains(item))
}

fn sets<'b, 'v>(name: &str, args: &[CowVal<'_, '_>], holds: impl Fn(&[Cel], &[Cel]) -> bool) -> Found<'b, 'v> {
    let (one, other) = two(args)?;
    give(Cel::Bool(holds(&items(&one, name)?, &items(&other, name)?)))
}

fn two(args: &[CowVal<'_, '_>]) -> Result<(Cel, Cel), ExecutionError> {
    match args {
        [one, other] => Ok((Cel::try_from(one.as_ref())?, Cel::try_from(other.as_ref())?)),
        _ => Err(ExecutionError::invalid_argument_count(2, args.len())),
    }
}

fn as_text<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Found<'b, 'v> {
    let [value] = args.as_slice() else {
        return Err(ExecutionError::invalid_argument_count(1, args.len()));
    };
    let text = Thing::of(&Cel::try_from(value.as_ref())?, "string")?.spelled();
    give(Cel::String(Arc::new(text.ok_or_else(|| {
        ExecutionError::function_error("string", "no such overload")
    })?)))
}

fn format<'b, 'v>(name: &'static str) -> Found<'b, 'v> {
    give(Thing::Format(name).into_cel())
}

fn give<'b, 'v>(value: Cel) -> Found<'b, 'v> {
    Ok(CowVal::Owned(value.try_into()?))
}
