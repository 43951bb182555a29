package sdk

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Values that are shorter, or one of these words, are left in texts: hiding them would make every message unreadable, and they
// protect nothing.
const secretMin = 6

var common = map[string]bool{"default": true, "admin": true, "administrator": true, "public": true, "private": true, "internal": true, "service": true, "project": true}

// Hide takes the values of a Secret and the user data out of a text: providers repeat what they refuse. It knows them as they are
// and as Go, JSON, URLs and headers write them.
func Hide(text string, data map[string][]byte, userData []byte) string {
	return valuesOf(data, userData).hide(text)
}

// values are what must be in no text.
type values map[string]bool

func valuesOf(data map[string][]byte, userData []byte) values {
	all := values{}
	all.add(string(userData))
	for _, value := range data {
		all.add(string(value))
	}
	return all
}

func (v values) add(value string) {
	for _, part := range append(strings.Split(value, "\n"), value) { // keys and JSON come back line by line, too
		for _, part := range []string{part, strings.TrimSpace(part)} {
			if len(part) >= secretMin && !common[strings.ToLower(part)] {
				v[part] = true
			}
		}
	}
	var document any
	if strings.ContainsAny(value, "{[") && json.Unmarshal([]byte(value), &document) == nil { // a service account's file
		v.addWithin(document)
	}
}

func (v values) addWithin(document any) {
	switch of := document.(type) {
	case string:
		v.add(of)
	case []any:
		for _, inner := range of {
			v.addWithin(inner)
		}
	case map[string]any:
		for _, inner := range of {
			v.addWithin(inner)
		}
	}
}

// hide marks first and replaces then, so that what overlaps, or is a part of another value, is hidden to its end.
func (v values) hide(text string) string {
	hidden := make([]bool, len(text))
	for value := range v {
		if len(value) > len(text) { // no form of it is shorter
			continue
		}
		for _, form := range formsOf(value) {
			mark(hidden, text, form)
		}
	}
	var out strings.Builder
	for at := range len(text) {
		if !hidden[at] {
			out.WriteByte(text[at])
		} else if at == 0 || !hidden[at-1] {
			out.WriteString("[hidden]")
		}
	}
	return out.String()
}

func mark(hidden []bool, text, form string) {
	if len(form) < secretMin {
		return
	}
	for from := 0; ; {
		at := strings.Index(text[from:], form)
		if at < 0 {
			return
		}
		for letter := range len(form) {
			hidden[from+at+letter] = true
		}
		from += at + 1
	}
}

func formsOf(value string) []string {
	raw := []byte(value)
	forms := []string{value, url.QueryEscape(value), url.PathEscape(value), inner(strconv.Quote(value)), inner(strconv.QuoteToASCII(value)), hex.EncodeToString(raw), strings.ToUpper(hex.EncodeToString(raw))}
	if text, err := json.Marshal(value); err == nil {
		forms = append(forms, inner(string(text)))
	}
	decimal, hexadecimal := make([]string, len(raw)), make([]string, len(raw)) // %v and %#v of bytes
	for at, letter := range raw {
		decimal[at], hexadecimal[at] = strconv.Itoa(int(letter)), fmt.Sprintf("%#x", letter)
	}
	forms = append(forms, strings.Join(decimal, " "), strings.Join(hexadecimal, ", "))
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		forms = append(forms, encoding.EncodeToString(raw))
		for before := range 3 { // within something longer, as user:password of a header: the letters that are the value's alone
			text := encoding.WithPadding(base64.NoPadding).EncodeToString(append(make([]byte, before), raw...))
			forms = append(forms, text[(before*8+5)/6:(before+len(raw))*8/6])
		}
	}
	return forms
}

func inner(quoted string) string { return quoted[1 : len(quoted)-1] }
