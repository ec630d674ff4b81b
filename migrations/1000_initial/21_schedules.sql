-- The schedule grammar of pgsched/core/schedule/grammar.py, word for word: the same texts are accepted, and the rest is
-- refused with the same words. Only "never fires" is left to the program. Change both or neither.

CREATE FUNCTION pgsched.schedule_value_error(field text, typed text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    low integer := CASE WHEN field IN ('day of month', 'month') THEN 1 ELSE 0 END;
    top integer := CASE field WHEN 'hour' THEN 23 WHEN 'day of month' THEN 31 WHEN 'month' THEN 12
                              WHEN 'day of week' THEN 7 ELSE 59 END;
BEGIN
    IF pgsched.schedule_value(field, typed) IS NULL THEN
        RETURN format('%s: "%s" is not a number', field, typed)
            || CASE WHEN field IN ('month', 'day of week') THEN ' or a name' ELSE '' END;
    ELSIF pgsched.schedule_value(field, typed) NOT BETWEEN low AND top THEN
        RETURN format('%s: %s is out of range %s-%s', field, typed, low, top);
    END IF;
    RETURN NULL;
END $$;

-- NULL when the text is neither a number nor a name of the field.
CREATE FUNCTION pgsched.schedule_value(field text, typed text) RETURNS numeric
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN typed ~ '^[0-9]+$' THEN typed::numeric
        WHEN field = 'month' THEN
            array_position('{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}'::text[], lower(typed COLLATE "C"))
        WHEN field = 'day of week' THEN
            array_position('{sun,mon,tue,wed,thu,fri,sat}'::text[], lower(typed COLLATE "C")) - 1
    END
$$;

CREATE FUNCTION pgsched.schedule_step_error(field text, step text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    size integer := CASE field WHEN 'hour' THEN 24 WHEN 'day of month' THEN 31 WHEN 'month' THEN 12
                               WHEN 'day of week' THEN 7 ELSE 60 END;
BEGIN
    IF step !~ '^[0-9]+$' THEN
        RETURN format('%s: step "%s" is not a number', field, step);
    ELSIF step::numeric = 0 THEN
        RETURN format('%s: step 0 must be at least 1', field);
    ELSIF step::numeric > size THEN
        RETURN format('%s: step %s is larger than the field (%s values)', field, step, size);
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION pgsched.schedule_range_error(field text, low text, high text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    reason text := coalesce(pgsched.schedule_value_error(field, low), pgsched.schedule_value_error(field, high));
    first_value numeric := pgsched.schedule_value(field, low);
    last_value numeric := pgsched.schedule_value(field, high);
BEGIN
    IF reason IS NULL AND first_value > last_value AND NOT (field = 'day of week' AND last_value = 0) THEN
        reason := format('%s: range %s-%s runs backwards', field, low, high);
    END IF;
    RETURN reason;
END $$;

-- A number, a range or a star, with or without a step.
CREATE FUNCTION pgsched.schedule_numbers_error(field text, item text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    body text := split_part(item, '/', 1);
    low text := split_part(body, '-', 1);
    high text := substr(body, length(low) + 2);
    reason text;
BEGIN
    IF strpos(item, '/') > 0 THEN
        reason := pgsched.schedule_step_error(field, substr(item, length(body) + 2));
    END IF;
    IF reason IS NOT NULL OR body = '*' THEN
        RETURN reason;
    ELSIF low <> '' AND high <> '' THEN
        RETURN pgsched.schedule_range_error(field, low, high);
    END IF;
    RETURN pgsched.schedule_value_error(field, body);
END $$;

CREATE FUNCTION pgsched.schedule_item_error(field text, item text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    reason text;
BEGIN
    IF field = 'day of month' AND item ~* '^lw?$' THEN
        RETURN NULL;
    ELSIF field = 'day of month' AND item ~* '^[0-9]+w$' THEN
        RETURN pgsched.schedule_value_error(field, left(item, -1));
    ELSIF field = 'day of week' AND item ~* '^[0-9a-z]+#' THEN
        reason := pgsched.schedule_value_error(field, split_part(item, '#', 1));
        IF reason IS NULL AND item !~ '^[^#]+#0*[1-5]$' THEN
            reason := format('%s: "%s" needs a number from 1 to 5 after #', field, item);
        END IF;
        RETURN reason;
    ELSIF field = 'day of week' AND item ~* '^([0-9]+|[a-z]{3})l$' THEN
        RETURN pgsched.schedule_value_error(field, left(item, -1));
    END IF;
    RETURN pgsched.schedule_numbers_error(field, item);
END $$;

CREATE FUNCTION pgsched.schedule_field_error(field text, entry text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    items text[] := string_to_array(entry, ',');
    item text;
    reason text;
BEGIN
    FOREACH item IN ARRAY items LOOP
        IF item = '' THEN
            RETURN format('%s: empty item in "%s"', field, entry);
        ELSIF item ~* '\?|^[hr](\(.*\))?(/.*)?$' THEN
            RETURN format('%s: "%s" is not supported', field, item);
        END IF;
    END LOOP;
    FOREACH item IN ARRAY items LOOP
        reason := pgsched.schedule_item_error(field, item);
        EXIT WHEN reason IS NOT NULL;
    END LOOP;
    RETURN reason;
END $$;

CREATE FUNCTION pgsched.schedule_interval_error(typed text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    parts text[] := regexp_match(typed, '^(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?$', 'i');
    total numeric := coalesce(parts[1], '0')::numeric * 86400 + coalesce(parts[2], '0')::numeric * 3600
                   + coalesce(parts[3], '0')::numeric * 60 + coalesce(parts[4], '0')::numeric;
BEGIN
    IF parts IS NULL THEN
        RETURN format('schedule: "%s" is not a duration such as 90s or 1h30m', typed);
    ELSIF total < 1 THEN
        RETURN format('schedule: "%s" is shorter than 1s', typed);
    ELSIF total > 10000 * 86400 THEN
        RETURN format('schedule: "%s" is longer than 10000d', typed);
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION pgsched.schedule_macro_error(words text[]) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    macro text := lower(words[1] COLLATE "C");
BEGIN
    IF macro IN ('@every', '@after') AND cardinality(words) <> 2 THEN
        RETURN format('schedule: %s needs one duration such as 90s or 1h30m', macro);
    ELSIF macro IN ('@every', '@after') THEN
        RETURN pgsched.schedule_interval_error(words[2]);
    ELSIF macro = '@reboot' THEN
        RETURN format('schedule: "%s" is not supported', words[1]);
    ELSIF macro NOT IN ('@yearly', '@annually', '@monthly', '@weekly', '@daily', '@midnight', '@hourly') THEN
        RETURN format('schedule: "%s" is not a known macro', words[1]);
    ELSIF cardinality(words) > 1 THEN
        RETURN format('schedule: %s takes nothing after it', words[1]);
    END IF;
    RETURN NULL;
END $$;

-- What is wrong with a schedule, as "field: reason"; NULL when nothing is.
CREATE FUNCTION pgsched.schedule_error(expression text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    words text[] := regexp_split_to_array(btrim(expression, E' \t'), '[ \t]+');
    fields text[] := ARRAY['second', 'minute', 'hour', 'day of month', 'month', 'day of week'];
    reason text;
BEGIN
    IF length(expression) > 512 THEN
        RETURN 'schedule: longer than 512 characters';
    ELSIF expression COLLATE "C" !~ '^[\x20-\x7e\t]*$' THEN
        RETURN 'schedule: only printable ASCII is accepted';
    ELSIF words[1] LIKE '@%' THEN
        RETURN pgsched.schedule_macro_error(words);
    ELSIF words[1] ~* '^(cron_)?tz=' THEN
        RETURN format('schedule: "%s" is not supported, set timezone instead', words[1]);
    ELSIF words[1] = '' OR cardinality(words) NOT IN (5, 6) THEN
        RETURN format('schedule: expected 5 or 6 fields, got %s', cardinality(array_remove(words, '')));
    END IF;
    FOR i IN 1 .. cardinality(words) LOOP
        reason := pgsched.schedule_field_error(fields[6 - cardinality(words) + i], words[i]);
        EXIT WHEN reason IS NOT NULL;
    END LOOP;
    RETURN reason;
END $$;

-- Whole seconds; NULL for any schedule that is not @every.
CREATE FUNCTION pgsched.every_interval(schedule text) RETURNS interval
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT make_interval(secs => coalesce(p[1], '0')::float8 * 86400 + coalesce(p[2], '0')::float8 * 3600
                                 + coalesce(p[3], '0')::float8 * 60 + coalesce(p[4], '0')::float8)
    FROM regexp_match(schedule,
        '^[ \t]*@every[ \t]+(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?[ \t]*$', 'i') AS p
    WHERE p IS NOT NULL
$$;

-- The IANA names of a region known when this was written. The list spares most a slow scan of pg_timezone_names.
CREATE FUNCTION pgsched.listed_timezones(region text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE region
        WHEN '' THEN 'CET CST6CDT Cuba EET EST EST5EDT Egypt Eire Factory GB GB-Eire GMT GMT+0 GMT-0 GMT0 Greenwich HST
            Hongkong Iceland Iran Israel Jamaica Japan Kwajalein Libya MET MST MST7MDT NZ NZ-CHAT Navajo PRC PST8PDT
            Poland Portugal ROC ROK Singapore Turkey UCT UTC Universal W-SU WET Zulu'
        WHEN 'Africa' THEN 'Abidjan Accra Addis_Ababa Algiers Asmara Asmera Bamako Bangui Banjul Bissau Blantyre
            Brazzaville Bujumbura Cairo Casablanca Ceuta Conakry Dakar Dar_es_Salaam Djibouti Douala El_Aaiun Freetown
            Gaborone Harare Johannesburg Juba Kampala Khartoum Kigali Kinshasa Lagos Libreville Lome Luanda Lubumbashi
            Lusaka Malabo Maputo Maseru Mbabane Mogadishu Monrovia Nairobi Ndjamena Niamey Nouakchott Ouagadougou
            Porto-Novo Sao_Tome Timbuktu Tripoli Tunis Windhoek'
        WHEN 'America' THEN 'Adak Anchorage Anguilla Antigua Araguaina Argentina/Buenos_Aires Argentina/Catamarca
            Argentina/ComodRivadavia Argentina/Cordoba Argentina/Jujuy Argentina/La_Rioja Argentina/Mendoza
            Argentina/Rio_Gallegos Argentina/Salta Argentina/San_Juan Argentina/San_Luis Argentina/Tucuman
            Argentina/Ushuaia Aruba Asuncion Atikokan Atka Bahia Bahia_Banderas Barbados Belem Belize Blanc-Sablon
            Boa_Vista Bogota Boise Buenos_Aires Cambridge_Bay Campo_Grande Cancun Caracas Catamarca Cayenne Cayman
            Chicago Chihuahua Ciudad_Juarez Coral_Harbour Cordoba Costa_Rica Coyhaique Creston Cuiaba Curacao
            Danmarkshavn Dawson Dawson_Creek Denver Detroit Dominica Edmonton Eirunepe El_Salvador Ensenada Fort_Nelson
            Fort_Wayne Fortaleza Glace_Bay Godthab Goose_Bay Grand_Turk Grenada Guadeloupe Guatemala Guayaquil Guyana
            Halifax Havana Hermosillo Indiana/Indianapolis Indiana/Knox Indiana/Marengo Indiana/Petersburg
            Indiana/Tell_City Indiana/Vevay Indiana/Vincennes Indiana/Winamac Indianapolis Inuvik Iqaluit Jamaica Jujuy
            Juneau Kentucky/Louisville Kentucky/Monticello Knox_IN Kralendijk La_Paz Lima Los_Angeles Louisville
            Lower_Princes Maceio Managua Manaus Marigot Martinique Matamoros Mazatlan Mendoza Menominee Merida
            Metlakatla Mexico_City Miquelon Moncton Monterrey Montevideo Montreal Montserrat Nassau New_York Nipigon
            Nome Noronha North_Dakota/Beulah North_Dakota/Center North_Dakota/New_Salem Nuuk Ojinaga Panama Pangnirtung
            Paramaribo Phoenix Port-au-Prince Port_of_Spain Porto_Acre Porto_Velho Puerto_Rico Punta_Arenas Rainy_River
            Rankin_Inlet Recife Regina Resolute Rio_Branco Rosario Santa_Isabel Santarem Santiago Santo_Domingo
            Sao_Paulo Scoresbysund Shiprock Sitka St_Barthelemy St_Johns St_Kitts St_Lucia St_Thomas St_Vincent
            Swift_Current Tegucigalpa Thule Thunder_Bay Tijuana Toronto Tortola Vancouver Virgin Whitehorse Winnipeg
            Yakutat Yellowknife'
        WHEN 'Antarctica' THEN 'Casey Davis DumontDUrville Macquarie Mawson McMurdo Palmer Rothera South_Pole Syowa
            Troll Vostok'
        WHEN 'Arctic' THEN 'Longyearbyen'
        WHEN 'Asia' THEN 'Aden Almaty Amman Anadyr Aqtau Aqtobe Ashgabat Ashkhabad Atyrau Baghdad Bahrain Baku Bangkok
            Barnaul Beirut Bishkek Brunei Calcutta Chita Choibalsan Chongqing Chungking Colombo Dacca Damascus Dhaka
            Dili Dubai Dushanbe Famagusta Gaza Harbin Hebron Ho_Chi_Minh Hong_Kong Hovd Irkutsk Istanbul Jakarta
            Jayapura Jerusalem Kabul Kamchatka Karachi Kashgar Kathmandu Katmandu Khandyga Kolkata Krasnoyarsk
            Kuala_Lumpur Kuching Kuwait Macao Macau Magadan Makassar Manila Muscat Nicosia Novokuznetsk Novosibirsk
            Omsk Oral Phnom_Penh Pontianak Pyongyang Qatar Qostanay Qyzylorda Rangoon Riyadh Saigon Sakhalin Samarkand
            Seoul Shanghai Singapore Srednekolymsk Taipei Tashkent Tbilisi Tehran Tel_Aviv Thimbu Thimphu Tokyo Tomsk
            Ujung_Pandang Ulaanbaatar Ulan_Bator Urumqi Ust-Nera Vientiane Vladivostok Yakutsk Yangon Yekaterinburg
            Yerevan'
        WHEN 'Atlantic' THEN 'Azores Bermuda Canary Cape_Verde Faeroe Faroe Jan_Mayen Madeira Reykjavik South_Georgia
            St_Helena Stanley'
        WHEN 'Australia' THEN 'ACT Adelaide Brisbane Broken_Hill Canberra Currie Darwin Eucla Hobart LHI Lindeman
            Lord_Howe Melbourne NSW North Perth Queensland South Sydney Tasmania Victoria West Yancowinna'
        WHEN 'Brazil' THEN 'Acre DeNoronha East West'
        WHEN 'Canada' THEN 'Atlantic Central Eastern Mountain Newfoundland Pacific Saskatchewan Yukon'
        WHEN 'Chile' THEN 'Continental EasterIsland'
        WHEN 'Etc' THEN 'GMT GMT+0 GMT+1 GMT+10 GMT+11 GMT+12 GMT+2 GMT+3 GMT+4 GMT+5 GMT+6 GMT+7 GMT+8 GMT+9 GMT-0
            GMT-1 GMT-10 GMT-11 GMT-12 GMT-13 GMT-14 GMT-2 GMT-3 GMT-4 GMT-5 GMT-6 GMT-7 GMT-8 GMT-9 GMT0 Greenwich UCT
            UTC Universal Zulu'
        WHEN 'Europe' THEN 'Amsterdam Andorra Astrakhan Athens Belfast Belgrade Berlin Bratislava Brussels Bucharest
            Budapest Busingen Chisinau Copenhagen Dublin Gibraltar Guernsey Helsinki Isle_of_Man Istanbul Jersey
            Kaliningrad Kiev Kirov Kyiv Lisbon Ljubljana London Luxembourg Madrid Malta Mariehamn Minsk Monaco Moscow
            Nicosia Oslo Paris Podgorica Prague Riga Rome Samara San_Marino Sarajevo Saratov Simferopol Skopje Sofia
            Stockholm Tallinn Tirane Tiraspol Ulyanovsk Uzhgorod Vaduz Vatican Vienna Vilnius Volgograd Warsaw Zagreb
            Zaporozhye Zurich'
        WHEN 'Indian' THEN 'Antananarivo Chagos Christmas Cocos Comoro Kerguelen Mahe Maldives Mauritius Mayotte
            Reunion'
        WHEN 'Mexico' THEN 'BajaNorte BajaSur General'
        WHEN 'Pacific' THEN 'Apia Auckland Bougainville Chatham Chuuk Easter Efate Enderbury Fakaofo Fiji Funafuti
            Galapagos Gambier Guadalcanal Guam Honolulu Johnston Kanton Kiritimati Kosrae Kwajalein Majuro Marquesas
            Midway Nauru Niue Norfolk Noumea Pago_Pago Palau Pitcairn Pohnpei Ponape Port_Moresby Rarotonga Saipan
            Samoa Tahiti Tarawa Tongatapu Truk Wake Wallis Yap'
        WHEN 'US' THEN 'Alaska Aleutian Arizona Central East-Indiana Eastern Hawaii Indiana-Starke Michigan Mountain
            Pacific Samoa'
    END
$$;

-- What is wrong with a time zone, as "field: reason"; NULL when it is an IANA name in its exact spelling.
CREATE FUNCTION pgsched.timezone_error(zone text) RETURNS text
LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    region text := CASE WHEN strpos(zone, '/') > 0 THEN split_part(zone, '/', 1) ELSE '' END;
    place text := CASE WHEN region = '' THEN zone ELSE substr(zone, length(region) + 2) END;
    refused text := format('timezone: "%s" is not a known IANA zone', left(zone, 64));
BEGIN
    IF zone COLLATE "C" !~ '^[\x20-\x7e]*$' THEN
        RETURN 'timezone: only printable ASCII is accepted';
    ELSIF place = ANY (regexp_split_to_array(btrim(pgsched.listed_timezones(region), E' \n'), '\s+')) THEN
        RETURN NULL;
    -- A zone newer than the list has a region; anything without one is an abbreviation or a POSIX zone string.
    ELSIF length(zone) > 64 OR zone COLLATE "C" !~ '^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)+$' THEN
        RETURN refused;
    END IF;
    -- Knows no case and takes POSIX strings, but is quick: the scan below is left to names that pass it.
    PERFORM now() AT TIME ZONE zone;
    IF EXISTS (SELECT FROM pg_timezone_names AS known WHERE known.name = zone) THEN
        RETURN NULL;
    END IF;
    RETURN refused;
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN refused;
END $$;

CREATE FUNCTION pgsched.calendar_error(c pgsched.job_calendars) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN c.from_date IS NULL THEN 'from_date: must not be null'
        WHEN c.from_date NOT BETWEEN '1970-01-01' AND '8999-12-31' THEN
            format('from_date: %s is not a date between 1970 and 9000', c.from_date)
        WHEN c.until_date NOT BETWEEN '1970-01-01' AND '8999-12-31' THEN
            format('until_date: %s is not a date between 1970 and 9000', c.until_date)
        WHEN c.until_date < c.from_date THEN
            format('until_date: %s is earlier than from_date, %s', c.until_date, c.from_date)
        WHEN c.reason IS NOT NULL THEN pgsched.bad_text('reason', c.reason, 200) END
$$;
